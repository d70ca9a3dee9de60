"""Lists: kinds, namespaces and selectors."""

import pytest

from tests.integration.api_server.client import LEASES, NODES, Api


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


async def test_a_limit_makes_pages_of_one_version(api: Api) -> None:
    case = api.new_name()
    names = [(await api.new(NODES, metadata={"labels": {"case": case}})).name for _ in range(5)]
    asked = {"labelSelector": f"case={case}", "limit": 2}
    first = await api.get(NODES, **asked)
    assert first.names == names[:2]
    await api.delete(f"{NODES}/{names[4]}")
    second = await api.get(NODES, **asked, **{"continue": first.body["metadata"]["continue"]})
    assert (second.names, second.version) == (names[2:4], first.version)
    last = await api.get(NODES, **asked, **{"continue": second.body["metadata"]["continue"]})
    assert last.names == names[4:]
    assert set(last.body["metadata"]) == {"resourceVersion"}
    assert (await api.get(NODES, **asked, **{"continue": "nonsense"})).status == 400


async def test_a_page_tells_how_many_follow_unless_a_selector_chose(api: Api) -> None:
    for _ in range(3):
        await api.new(LEASES)
    page = await api.get(LEASES, limit=1)
    whole = await api.get(LEASES)
    assert page.body["metadata"]["remainingItemCount"] == len(whole.names) - 1
    chosen = await api.get(LEASES, limit=1, labelSelector="absent!=x")
    assert chosen.body["metadata"]["continue"]
    assert "remainingItemCount" not in chosen.body["metadata"]
