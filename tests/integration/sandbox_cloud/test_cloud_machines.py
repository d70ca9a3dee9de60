"""Machines as the cloud's API shows them: by name, by id, all of them, and through their lives."""

import pytest

from ccm.sandbox.cloud.codec import CloudApiError
from ccm.sandbox.cloud.records import Machine, Power
from ccm.sandbox.cloud.state import CloudState, MachineTable

from .conftest import Cloud, HandClock


@pytest.mark.parametrize("key", ["names", "ids"])
async def test_what_is_asked_for_and_not_there_is_said_so(cloud: Cloud, key: str) -> None:
    assert (await cloud.get("/v1/machines")).body == {"items": [], "next_page_token": None}
    first, _, last = cloud.state.add_machines(3)
    wanted = [last.name, first.name] if key == "names" else [last.id, first.id]
    reply = await cloud.get(f"/v1/machines?{key}={wanted[0]},nobody,{wanted[1]}")
    assert sorted(reply.names) == [first.name, last.name]
    assert reply.body["not_found"] == ["nobody"]


async def test_a_machine_has_everything_a_node_needs(cloud: Cloud) -> None:
    cloud.state.machines.add(Machine("web", id="m-1", zone="zone-c", labels={"rack": "7"}))
    reply = await cloud.get("/v1/machines?names=web")
    assert reply.body["items"] == [
        {
            "name": "web",
            "id": "m-1",
            "type": "standard-2",
            "zone": "zone-c",
            "region": "region-1",
            "power": "running",
            "addresses": [
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "Hostname", "address": "web"},
            ],
            "labels": {"rack": "7"},
        }
    ]


async def test_a_question_about_more_than_a_page_is_refused(cloud: Cloud) -> None:
    reply = await cloud.get("/v1/machines?names=" + ",".join(f"n{number}" for number in range(11)))
    assert (reply.status, reply.code) == (400, "InvalidRequest")


async def test_a_terminated_machine_stays_visible_and_then_is_absent(
    cloud: Cloud, clock: HandClock
) -> None:
    cloud.set_parameters(retention=30)
    [machine] = cloud.state.add_machines(1)
    cloud.state.machines.terminate("node-0")
    question = f"/v1/machines?ids={machine.id}"
    assert (await cloud.get(question)).body["items"][0]["power"] == "terminated"
    clock.advance(29.9)
    assert (await cloud.get(question)).names == ["node-0"]
    clock.advance(0.1)
    assert (await cloud.get(question)).body["not_found"] == [machine.id]


@pytest.fixture
def machines() -> MachineTable:
    return CloudState().machines


def test_a_terminated_machine_never_comes_back_and_leaves_its_name_to_a_live_one(
    machines: MachineTable,
) -> None:
    assert machines.add(Machine("by-hand", id="m-00000002")).power is Power.RUNNING
    assert machines.add(Machine("next")).id == "m-00000003"  # an id is never given again
    with pytest.raises(CloudApiError, match="exists"):
        machines.add(Machine("again", id="m-00000002"))
    assert machines.add(Machine("a", id="old")).power is Power.RUNNING
    assert [machines.stop("a").power for _ in range(2)] == [Power.STOPPED] * 2
    assert machines.start("a").power is Power.RUNNING
    machines.terminate("a")
    with pytest.raises(CloudApiError, match="terminated for good"):
        machines.start("a")
    machines.add(Machine("a", id="new"))
    assert machines.get("a").id == "new"
    machines.add(Machine("a", id="newer"))
    with pytest.raises(CloudApiError, match="use an id: new, newer"):
        machines.get("a")


# --- pages


async def everything(cloud: Cloud, path: str) -> list[list[str]]:
    """The names of each page until there is no next one."""
    pages, token = [], ""
    while True:
        reply = await cloud.get(path + (f"?page_token={token}" if token else ""))
        pages.append(reply.names)
        token = reply.body["next_page_token"]
        if not token:
            return pages


@pytest.mark.parametrize(("machines", "sizes"), [(25, [10, 10, 5]), (20, [10, 10])])
async def test_a_list_comes_in_full_pages_and_none_is_empty(
    cloud: Cloud, machines: int, sizes: list[int]
) -> None:
    cloud.state.add_machines(machines)
    pages = await everything(cloud, "/v1/machines")
    assert [len(page) for page in pages] == sizes
    assert len({name for page in pages for name in page}) == machines


async def test_a_machine_dropped_between_pages_hides_no_other(cloud: Cloud) -> None:
    cloud.state.add_machines(15)
    first = await cloud.get("/v1/machines")
    cloud.state.machines.vanish("node-0")
    second = await cloud.get(f"/v1/machines?page_token={first.body['next_page_token']}")
    assert second.names == ["node-10", "node-11", "node-12", "node-13", "node-14"]
