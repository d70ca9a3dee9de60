"""What goes wrong on command, and for which calls."""

import asyncio
import errno

import aiohttp
import orjson
import pytest

from ccm.sandbox.cloud.faults import Fault, Kind
from ccm.sandbox.cloud.problems import Problem
from ccm.sandbox.cloud.server import CloudServer

from .calling import Caller, until


@pytest.fixture(autouse=True)
def machines(cloud: CloudServer) -> None:
    cloud.state.add_machines(4)


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (Fault(Kind.ERROR), 500),
        (Fault(Kind.ERROR, status=503), 503),
        (Fault(Kind.DENIED), 403),
        (Fault(Kind.DENIED, status=401), 401),
        (Fault(Kind.THROTTLE, retry_after=7), 429),
    ],
)
async def test_a_call_is_refused(
    cloud: CloudServer, caller: Caller, fault: Fault, status: int
) -> None:
    cloud.faults.set(fault)
    reply = await caller.get("/v1/machines")
    assert reply.status == status
    assert cloud.counters.count("ListMachines", status=status) == 1
    if fault.kind is Kind.THROTTLE:
        assert reply.headers["Retry-After"] == "7"


async def test_a_fault_ends_after_its_count(cloud: CloudServer, caller: Caller) -> None:
    cloud.faults.set(Fault(Kind.ERROR, remaining=2))
    statuses = [(await caller.get("/v1/machines")).status for _ in range(3)]
    assert statuses == [500, 500, 200]
    assert cloud.faults.active() == []


async def test_a_fault_stays_until_it_is_cleared(cloud: CloudServer, caller: Caller) -> None:
    fault = cloud.faults.set(Fault(Kind.ERROR))
    assert [(await caller.get("/v1/machines")).status for _ in range(3)] == [500] * 3
    assert cloud.faults.active()[0].hits == 3
    cloud.faults.clear(fault.id)
    assert (await caller.get("/v1/machines")).status == 200
    with pytest.raises(Problem):
        cloud.faults.clear(fault.id)


async def test_a_fault_hits_only_the_operations_it_names(
    cloud: CloudServer, caller: Caller
) -> None:
    cloud.faults.set(Fault(Kind.ERROR, operation="*Route*"))
    assert (await caller.get("/v1/routes")).status == 500
    assert (await caller.post("/v1/routes", {})).status == 500
    assert (await caller.get("/v1/machines")).status == 200


async def test_the_first_matching_fault_has_the_call(cloud: CloudServer, caller: Caller) -> None:
    cloud.faults.set(Fault(Kind.DENIED, remaining=1))
    cloud.faults.set(Fault(Kind.ERROR))
    assert [(await caller.get("/v1/machines")).status for _ in range(2)] == [403, 500]


async def test_a_hanging_call_gets_no_answer_and_holds_up_nobody(
    cloud: CloudServer, caller: Caller
) -> None:
    cloud.faults.set(Fault(Kind.TIMEOUT, remaining=1))
    hanging = asyncio.create_task(caller.get("/v1/machines"))
    await until(lambda: not cloud.faults.active())
    assert (await caller.get("/v1/machines")).status == 200
    assert not hanging.done()
    assert cloud.counters.count(status=0) == 1
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging


async def test_a_stop_ends_hanging_calls() -> None:
    async with CloudServer() as cloud, aiohttp.ClientSession() as session:
        cloud.faults.set(Fault(Kind.TIMEOUT, remaining=1))
        hanging = asyncio.create_task(Caller(cloud.url, session).get("/v1/machines"))
        await until(lambda: not cloud.faults.active())
        async with asyncio.timeout(5):
            await cloud.stop()
            reply = await hanging
    assert reply.status == 500


async def test_a_connection_is_reset(cloud: CloudServer, caller: Caller) -> None:
    cloud.faults.set(Fault(Kind.RESET, remaining=1))
    with pytest.raises(aiohttp.ClientOSError) as raised:
        await caller.get("/v1/machines")
    assert raised.value.errno == errno.ECONNRESET
    assert cloud.counters.count("ListMachines", status=0) == 1
    assert (await caller.get("/v1/machines")).status == 200


async def test_an_answer_is_garbage(cloud: CloudServer, caller: Caller) -> None:
    cloud.faults.set(Fault(Kind.GARBAGE, remaining=1))
    with pytest.raises(orjson.JSONDecodeError):
        await caller.get("/v1/machines")
    cloud.faults.set(Fault(Kind.GARBAGE, body='{"items": 7}'))
    assert (await caller.get("/v1/machines")).body == {"items": 7}


async def test_a_list_lacks_a_share_without_a_word(cloud: CloudServer, caller: Caller) -> None:
    cloud.faults.set(Fault(Kind.PARTIAL, share=0.5))
    reply = await caller.get("/v1/machines?names=node-0,node-1,node-2,node-3,nobody")
    assert reply.names == ["node-0", "node-1"]
    assert reply.body["not_found"] == ["nobody"]


async def test_a_list_is_empty(cloud: CloudServer, caller: Caller) -> None:
    cloud.faults.set(Fault(Kind.EMPTY))
    assert (await caller.get("/v1/machines")).body == {"items": []}
    reply = await caller.get("/v1/machines?names=node-0,nobody")
    assert reply.body == {"items": [], "not_found": []}


async def test_the_cloud_lies_that_machines_do_not_exist(
    cloud: CloudServer, caller: Caller
) -> None:
    cloud.faults.set(Fault(Kind.ABSENT, share=0.5))
    reply = await caller.get("/v1/machines?names=node-0,node-1,nobody")
    assert reply.names == ["node-0"]
    assert reply.body["not_found"] == ["nobody", "node-1"]
    assert len((await caller.get("/v1/machines")).names) == 4


async def test_reads_answer_from_the_past_and_writes_do_not(
    cloud: CloudServer, caller: Caller
) -> None:
    cloud.faults.set(Fault(Kind.STALE))
    cloud.state.machines.stop("node-0")
    new = cloud.state.add_machines(1, prefix="new-")[0]
    reply = await caller.get("/v1/machines?names=node-0,new-0")
    assert reply.body["items"][0]["power"] == "running"
    assert reply.body["not_found"] == ["new-0"]
    made = await caller.post("/v1/routes", {"cidr": "10.1.0.0/24", "machine_id": new.id})
    assert made.status == 201
    assert (await caller.get("/v1/routes")).body["items"] == []
    cloud.faults.clear()
    assert len((await caller.get("/v1/routes")).body["items"]) == 1


async def test_a_write_can_be_done_although_its_answer_is_lost(
    cloud: CloudServer, caller: Caller
) -> None:
    cloud.faults.set(Fault(Kind.ERROR, operation="Create*", performed=True))
    assert (await caller.post("/v1/load-balancers", {"name": "a"})).status == 500
    assert (await caller.get("/v1/load-balancers/a")).status == 200


async def test_a_write_without_an_answer_is_done_once_or_refused_in_silence(
    cloud: CloudServer, caller: Caller
) -> None:
    cloud.faults.set(Fault(Kind.ERROR, operation="Create*", performed=True))
    for _ in range(2):
        assert (await caller.post("/v1/load-balancers", {"name": "a"})).status == 500


async def test_a_slow_write_is_done_once(cloud: CloudServer, caller: Caller) -> None:
    cloud.faults.set(Fault(Kind.SLOW, performed=True))
    assert (await caller.post("/v1/load-balancers", {"name": "a"})).status == 201


async def test_an_answer_comes_late(cloud: CloudServer, caller: Caller) -> None:
    cloud.faults.set(Fault(Kind.SLOW, delay=0.05, remaining=1))
    assert len((await caller.get("/v1/machines")).names) == 4
    assert cloud.counters.log[-1].seconds >= 0.05


async def test_every_call_takes_the_latency(cloud: CloudServer, caller: Caller) -> None:
    cloud.service.change_conditions(latency=0.05)
    await caller.get("/v1/machines")
    assert cloud.counters.log[-1].seconds >= 0.05


@pytest.mark.parametrize(
    "body",
    [{"kind": "meteor"}, {}, {"kind": "error", "share": 2}, {"kind": "error", "when": "now"}, 7],
)
def test_a_fault_that_means_nothing_is_refused(body: object) -> None:
    with pytest.raises(Problem):
        Fault.from_json(body)


def test_a_fault_survives_its_json() -> None:
    fault = Fault(Kind.PARTIAL, operation="List*", remaining=3, share=0.25, delay=1.5)
    assert Fault.from_json(fault.to_json()) == fault
