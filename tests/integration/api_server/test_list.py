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
