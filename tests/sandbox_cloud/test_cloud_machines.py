"""Machines as the cloud's API shows them: by name, by id, all of them, and through their lives."""

import pytest

from ccm.sandbox.cloud.problems import Problem
from ccm.sandbox.cloud.records import Machine, Power
from ccm.sandbox.cloud.server import CloudServer
from ccm.sandbox.cloud.state import CloudState

from .calling import Caller, HandClock


async def test_names_that_are_not_there_are_said_so(cloud: CloudServer, caller: Caller) -> None:
    cloud.state.add_machines(3)
    reply = await caller.get("/v1/machines?names=node-2,nobody,node-0")
    assert sorted(reply.names) == ["node-0", "node-2"]
    assert reply.body["not_found"] == ["nobody"]


async def test_ids_that_are_not_there_are_said_so(cloud: CloudServer, caller: Caller) -> None:
    [machine] = cloud.state.add_machines(1)
    reply = await caller.get(f"/v1/machines?ids=m-404,{machine.id}")
    assert reply.names == ["node-0"]
    assert reply.body["not_found"] == ["m-404"]


async def test_a_list_of_all_says_of_nothing_that_it_is_missing(caller: Caller) -> None:
    reply = await caller.get("/v1/machines")
    assert reply.body == {"items": [], "next_page_token": None}


async def test_a_machine_has_everything_a_node_needs(cloud: CloudServer, caller: Caller) -> None:
    cloud.state.machines.add(Machine("web", id="m-1", zone="zone-c", labels={"rack": "7"}))
    reply = await caller.get("/v1/machines?names=web")
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


async def test_all_machines_of_a_name_are_shown(cloud: CloudServer, caller: Caller) -> None:
    for machine_id in ("m-1", "m-2"):
        cloud.state.machines.add(Machine("twin", id=machine_id))
    reply = await caller.get("/v1/machines?names=twin")
    assert [item["id"] for item in reply.body["items"]] == ["m-1", "m-2"]


@pytest.mark.parametrize(
    "query",
    [
        "names=" + ",".join(f"n{number}" for number in range(11)),
        "ids=" + ",".join(f"m{number}" for number in range(11)),
        "names=a&ids=b",
        "names=",
        "names=a,,b",
        "limit=0",
        "limit=-1",
        "limit=many",
        "page_token=%00%00",
        "page_token=nonsense",
    ],
)
async def test_a_wrong_question_is_refused(caller: Caller, query: str) -> None:
    reply = await caller.get(f"/v1/machines?{query}")
    assert (reply.status, reply.code) == (400, "InvalidRequest")


async def test_a_page_full_of_the_longest_names_can_be_asked(
    cloud: CloudServer, caller: Caller
) -> None:
    cloud.service.change_conditions(page=100)
    names = [f"{'n' * 250}{number:03d}" for number in range(100)]
    reply = await caller.get(f"/v1/machines?names={','.join(names)}")
    assert reply.body["not_found"] == names


async def test_a_terminated_machine_stays_visible_and_then_is_absent(
    cloud: CloudServer, caller: Caller, clock: HandClock
) -> None:
    cloud.service.change_conditions(retention=30)
    [machine] = cloud.state.add_machines(1)
    cloud.state.machines.terminate("node-0")
    question = f"/v1/machines?ids={machine.id}"
    assert (await caller.get(question)).body["items"][0]["power"] == "terminated"
    clock.advance(29.9)
    assert (await caller.get(question)).names == ["node-0"]
    clock.advance(0.1)
    assert (await caller.get(question)).body["not_found"] == [machine.id]


def test_a_machine_takes_its_time_to_stop_and_to_start() -> None:
    clock = HandClock()
    cloud = CloudServer(clock=clock, boot=5, shutdown=3)
    machines = cloud.state.machines

    def power(after: float) -> Power:
        clock.advance(after)
        cloud.state.ledger.settle()
        return machines.get("a").power

    assert machines.add(Machine("a")).power is Power.STARTING
    assert power(after=5) is Power.RUNNING
    assert machines.stop("a").power is Power.STOPPING
    assert power(after=2.9) is Power.STOPPING
    assert power(after=0.1) is Power.STOPPED
    assert machines.start("a").power is Power.STARTING
    assert power(after=5) is Power.RUNNING


def test_a_machine_started_while_it_stops_does_not_stop_later() -> None:
    clock = HandClock()
    cloud = CloudServer(clock=clock, boot=5, shutdown=3)
    machines = cloud.state.machines
    machines.add(Machine("a", power=Power.STOPPED))
    machines.start("a")
    machines.stop("a")
    clock.advance(1)
    machines.start("a")
    clock.advance(2.5)
    cloud.state.ledger.settle()
    assert machines.get("a").power is Power.STARTING
    clock.advance(2.5)
    cloud.state.ledger.settle()
    assert machines.get("a").power is Power.RUNNING


def test_without_delays_power_changes_at_once() -> None:
    machines = CloudState().machines
    assert machines.add(Machine("a")).power is Power.RUNNING
    assert machines.stop("a").power is Power.STOPPED
    assert machines.stop("a").power is Power.STOPPED
    assert machines.start("a").power is Power.RUNNING


def test_a_terminated_machine_never_comes_back() -> None:
    machines = CloudState().machines
    machines.add(Machine("a"))
    machines.terminate("a")
    with pytest.raises(Problem, match="terminated for good"):
        machines.start("a")


def test_a_name_means_the_live_machine_of_that_name() -> None:
    machines = CloudState().machines
    machines.add(Machine("a", id="old"))
    machines.terminate("a")
    machines.add(Machine("a", id="new"))
    assert machines.get("a").id == "new"
    machines.add(Machine("a", id="newer"))
    with pytest.raises(Problem, match="use an id: new, newer"):
        machines.get("a")


def test_ids_given_by_hand_are_never_given_again() -> None:
    machines = CloudState().machines
    machines.add(Machine("a", id="m-00000002"))
    assert machines.add(Machine("b")).id == "m-00000003"
    with pytest.raises(Problem, match="exists"):
        machines.add(Machine("c", id="m-00000002"))


def test_every_change_raises_the_revision() -> None:
    state = CloudState()
    seen = [state.revision]
    state.machines.add(Machine("a"))
    seen.append(state.revision)
    state.machines.change("a", zone="zone-b")
    seen.append(state.revision)
    state.machines.stop("a")
    seen.append(state.revision)
    state.machines.vanish("a")
    seen.append(state.revision)
    assert seen == sorted(set(seen))


def test_a_snapshot_does_not_move_on() -> None:
    state = CloudState()
    state.machines.add(Machine("a"))
    earlier = state.snapshot()
    state.machines.change("a", zone="zone-z")
    state.machines.add(Machine("b"))
    assert earlier.machines.get("a").zone == "zone-a"
    assert earlier.machines.named("b") == []
