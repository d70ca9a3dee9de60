"""Lists: selectors, versions and pages."""

import asyncio

import pytest

from tests.contract.client import LEASES, NODES, Api, Reply

FUTURE = 10**12


async def three(api: Api) -> tuple[str, list[str]]:
    """Create three nodes and return a label selector for them and their names."""
    case = api.new_name()
    names = []
    for number in ("1", "2", "3"):
        labels = {"case": case, "number": number, f"only-{number}": ""}
        names.append((await api.new(NODES, metadata={"labels": labels})).name)
    return f"case={case}", names


async def test_a_list_is_of_its_kind_and_of_one_namespace_or_all(api: Api) -> None:
    node = await api.new(NODES)
    reply = await api.get(NODES, fieldSelector=f"metadata.name={node.name}")
    assert (reply.body["kind"], reply.body["apiVersion"]) == ("NodeList", "v1")
    assert set(reply.body["items"][0]) == {"metadata", "spec", "status"}
    assert int(reply.version) >= int(node.version)
    lease = await api.new(LEASES)
    path = LEASES.replace("/namespaces/default", "")
    found = await api.get(path, fieldSelector=f"metadata.name={lease.name}")
    assert found.body["items"][0]["metadata"]["namespace"] == "default"
    assert (await api.get(LEASES.replace("/default/", "/nowhere/"))).body["items"] == []


@pytest.mark.parametrize(
    ("term", "numbers"),
    [
        ("number=1", "1"),
        ("number==1", "1"),
        ("number!=1", "23"),
        ("number in (1,3)", "13"),
        ("number notin (1, 3)", "2"),
        ("only-2", "2"),
        ("!only-2", "13"),
        ("absent!=x", "123"),
        ("only-1=", "1"),
        ("number in (1,2),number!=2", "1"),
    ],
)
async def test_labels_select(api: Api, term: str, numbers: str) -> None:
    selector, names = await three(api)
    found = await api.get(NODES, labelSelector=f"{selector},{term}")
    assert found.names == [names[int(number) - 1] for number in numbers]


# --- pages


async def pages(api: Api, limit: int, **query: str) -> list[Reply]:
    found = [await api.get(NODES, limit=limit, **query)]
    while token := found[-1].body["metadata"].get("continue"):
        found.append(await api.get(NODES, limit=limit, **{**query, "continue": token}))
    return found


async def test_pages_hold_everything_once_at_one_version(api: Api) -> None:
    selector, names = await three(api)
    assert (await api.get(NODES, labelSelector=selector)).names == sorted(names)
    assert (await api.get(NODES, labelSelector=f"case={api.new_name()}")).body["items"] == []
    found = await pages(api, 2, labelSelector=selector)
    assert [page.names for page in found] == [names[:2], names[2:]]
    assert found[0].version == found[1].version
    assert "remainingItemCount" not in found[0].body["metadata"]


async def test_later_pages_show_what_was_there_at_the_first(api: Api) -> None:
    selector, names = await three(api)
    first = await api.get(NODES, limit=1, labelSelector=selector)
    await api.delete(f"{NODES}/{names[1]}")
    await api.merge(f"{NODES}/{names[2]}", {"metadata": {"labels": {"case": "other"}}})
    token = first.body["metadata"]["continue"]
    rest = await api.get(NODES, labelSelector=selector, **{"continue": token})
    assert rest.names == names[1:]


async def test_a_page_tells_how_many_remain_and_is_of_one_version(api: Api) -> None:
    await three(api)
    first = await api.get(NODES, limit=1)
    total = len((await api.get(NODES)).names)
    assert first.body["metadata"]["remainingItemCount"] == total - 1
    token = {"continue": first.body["metadata"]["continue"]}
    other = await api.get(NODES, resourceVersion=5, **token)
    assert other.refusal == (400, "BadRequest")
    at_any_version = await api.get(NODES, limit=1, resourceVersion=0)
    assert "continue" not in at_any_version.body["metadata"]


# --- versions


async def test_a_version_that_is_yet_to_come_is_504(api: Api) -> None:
    paths = (NODES, f"{NODES}/any")
    replies = await asyncio.gather(*(api.get(path, resourceVersion=FUTURE) for path in paths))
    for reply in replies:
        assert reply.refusal == (504, "Timeout")
        assert reply.body["details"]["retryAfterSeconds"] == 1
        assert reply.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
