"""Lists: selectors, versions and pages."""

import asyncio

import pytest

from tests.contract.client import LEASES, NODES, SERVICES, Api, Reply, new_service

FUTURE = 10**12


async def three(api: Api) -> tuple[str, list[str]]:
    """Create three nodes and return a label selector for them and their names."""
    case = api.new_name()
    names = []
    for number in ("1", "2", "3"):
        labels = {"case": case, "number": number, f"only-{number}": ""}
        names.append((await api.new(NODES, metadata={"labels": labels})).name)
    return f"case={case}", names


async def test_a_list_is_of_its_kind_and_its_items_name_none(api: Api) -> None:
    node = await api.new(NODES)
    reply = await api.get(NODES, fieldSelector=f"metadata.name={node.name}")
    assert (reply.body["kind"], reply.body["apiVersion"]) == ("NodeList", "v1")
    assert set(reply.body["items"][0]) == {"metadata", "spec", "status"}
    assert int(reply.version) >= int(node.version)


async def test_a_list_is_ordered_by_name_and_may_be_empty(api: Api) -> None:
    selector, names = await three(api)
    assert (await api.get(NODES, labelSelector=selector)).names == sorted(names)
    reply = await api.get(NODES, labelSelector=f"case={api.new_name()}")
    assert reply.body["items"] == []


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
        ("number>1", "23"),
        ("number<2", "1"),
        ("absent!=x", "123"),
        ("only-1=", "1"),
        ("number in (1,2),number!=2", "1"),
    ],
)
async def test_labels_select(api: Api, term: str, numbers: str) -> None:
    selector, names = await three(api)
    found = await api.get(NODES, labelSelector=f"{selector},{term}")
    assert found.names == [names[int(number) - 1] for number in numbers]


@pytest.mark.parametrize("selector", ["=", "a b", "a in (b", "a>x", "$=b"])
async def test_an_unreadable_label_selector_is_400(api: Api, selector: str) -> None:
    assert (await api.get(NODES, labelSelector=selector)).refusal == (400, "BadRequest")


async def test_fields_select(api: Api) -> None:
    selector, names = await three(api)
    await api.merge(f"{NODES}/{names[0]}", {"spec": {"unschedulable": True}})
    for term, numbers in [
        (f"metadata.name={names[1]}", [1]),
        (f"metadata.name!={names[1]}", [0, 2]),
        ("spec.unschedulable=true", [0]),
        ("spec.unschedulable=false", [1, 2]),
    ]:
        found = await api.get(NODES, labelSelector=selector, fieldSelector=term)
        assert found.names == [names[number] for number in numbers], term


async def test_services_are_found_by_type(api: Api) -> None:
    service = await new_service(api, type="NodePort")
    found = await api.get(SERVICES, fieldSelector="spec.type=NodePort")
    assert service.name in found.names


@pytest.mark.parametrize("selector", ["status.phase=x", "metadata.name"])
async def test_a_field_that_cannot_be_selected_is_400(api: Api, selector: str) -> None:
    assert (await api.get(NODES, fieldSelector=selector)).refusal == (400, "BadRequest")


async def test_a_list_over_all_namespaces_holds_those_of_one(api: Api) -> None:
    lease = await api.new(LEASES)
    path = LEASES.replace("/namespaces/default", "")
    found = await api.get(path, fieldSelector=f"metadata.name={lease.name}")
    assert found.body["items"][0]["metadata"]["namespace"] == "default"
    other = LEASES.replace("/default/", "/nowhere/")
    assert (await api.get(other)).body["items"] == []


# --- pages


async def pages(api: Api, limit: int, **query: str) -> list[Reply]:
    found = [await api.get(NODES, limit=limit, **query)]
    while token := found[-1].body["metadata"].get("continue"):
        found.append(await api.get(NODES, limit=limit, **{**query, "continue": token}))
    return found


async def test_pages_hold_everything_once_at_one_version(api: Api) -> None:
    selector, names = await three(api)
    found = await pages(api, 2, labelSelector=selector)
    assert [page.names for page in found] == [names[:2], names[2:]]
    assert found[0].version == found[1].version
    assert "remainingItemCount" not in found[0].body["metadata"]


async def test_a_page_without_a_selector_tells_how_many_remain(api: Api) -> None:
    await three(api)
    first = await api.get(NODES, limit=1)
    total = len((await api.get(NODES)).names)
    assert first.body["metadata"]["remainingItemCount"] == total - 1


async def test_later_pages_show_what_was_there_at_the_first(api: Api) -> None:
    selector, names = await three(api)
    first = await api.get(NODES, limit=1, labelSelector=selector)
    await api.delete(f"{NODES}/{names[1]}")
    await api.merge(f"{NODES}/{names[2]}", {"metadata": {"labels": {"case": "other"}}})
    token = first.body["metadata"]["continue"]
    rest = await api.get(NODES, labelSelector=selector, **{"continue": token})
    assert rest.names == names[1:]


async def test_at_any_version_there_are_no_pages(api: Api) -> None:
    await three(api)
    reply = await api.get(NODES, limit=1, resourceVersion=0)
    assert "continue" not in reply.body["metadata"]


@pytest.mark.parametrize("query", [{"continue": "junk"}, {"limit": "x"}])
async def test_unreadable_paging_is_400(api: Api, query: dict[str, str]) -> None:
    assert (await api.get(NODES, **query)).refusal == (400, "BadRequest")


async def test_a_token_is_not_for_another_version(api: Api) -> None:
    await three(api)
    token = (await api.get(NODES, limit=1)).body["metadata"]["continue"]
    reply = await api.get(NODES, resourceVersion=5, **{"continue": token})
    assert reply.refusal == (400, "BadRequest")


# --- versions


async def test_a_list_at_an_exact_version_shows_the_past(api: Api) -> None:
    selector, names = await three(api)
    then = (await api.get(NODES)).version
    await api.delete(f"{NODES}/{names[0]}")
    query = {"labelSelector": selector, "resourceVersionMatch": "Exact", "resourceVersion": then}
    past = await api.get(NODES, **query)
    assert (past.names, past.version) == (names, then)
    now = await api.get(NODES, **{**query, "resourceVersionMatch": "NotOlderThan"})
    assert now.names == names[1:]


async def test_a_version_that_is_yet_to_come_is_504(api: Api) -> None:
    paths = (NODES, f"{NODES}/any")
    replies = await asyncio.gather(*(api.get(path, resourceVersion=FUTURE) for path in paths))
    for reply in replies:
        assert reply.refusal == (504, "Timeout")
        assert reply.body["details"]["retryAfterSeconds"] == 1
        assert reply.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize("version", ["abc", "-1"])
async def test_an_unreadable_version_is_refused(api: Api, version: str) -> None:
    assert (await api.get(NODES, resourceVersion=version)).status == 400


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"resourceVersionMatch": "Exact"}, "Forbidden"),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, "Forbidden"),
        ({"resourceVersionMatch": "Other", "resourceVersion": "1"}, "NotSupported"),
    ],
)
async def test_versions_that_make_no_sense_are_422(
    api: Api, query: dict[str, str], reason: str
) -> None:
    assert (await api.get(NODES, **query)).causes == {f"resourceVersionMatch {reason}"}
