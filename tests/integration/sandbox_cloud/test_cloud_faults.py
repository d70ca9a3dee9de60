"""What goes wrong on command, and for which calls.

Many tests of the product expect that nothing happens under a fault. They would pass if the fault
did nothing; these would not.
"""

import asyncio
import re

import pytest

from ccm.sandbox.cloud.codec import CloudApiError
from ccm.sandbox.cloud.faults import CloudFault, CloudFaultKind
from tests.support.waiting import until

from .conftest import Cloud


@pytest.fixture(autouse=True)
def machines(cloud: Cloud) -> None:
    cloud.state.add_machines(4)


async def test_the_first_matching_fault_has_the_call_and_ends_after_its_count(
    cloud: Cloud,
) -> None:
    cloud.faults.set(CloudFault(CloudFaultKind.DENIED, remaining=1))
    cloud.faults.set(CloudFault(CloudFaultKind.ERROR, remaining=2))
    statuses = [(await cloud.get("/v1/machines")).status for _ in range(4)]
    assert statuses == [403, 500, 500, 200]
    assert cloud.faults.active() == []


@pytest.mark.parametrize(
    ("kind", "operation"),
    [(CloudFaultKind.DENIED, "create*"), (CloudFaultKind.STALE, "CreateRoute")],
)
def test_a_fault_that_meets_no_call_is_refused_with_what_there_is(
    cloud: Cloud, kind: CloudFaultKind, operation: str
) -> None:
    with pytest.raises(CloudApiError, match=f"'{re.escape(operation)}' .* CreateLoadBalancer"):
        cloud.faults.set(CloudFault(kind, operation))
    assert cloud.faults.active() == []


async def test_a_hanging_call_gets_no_answer_and_holds_up_no_one(cloud: Cloud) -> None:
    cloud.faults.set(CloudFault(CloudFaultKind.TIMEOUT, remaining=1))
    hanging = asyncio.create_task(cloud.get("/v1/machines"))
    await until(lambda: not cloud.faults.active())
    assert (await cloud.get("/v1/machines")).status == 200
    assert not hanging.done()
    assert cloud.counters.count(status=0) == 1
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging


@pytest.mark.parametrize(
    ("kind", "names", "not_found", "listed"),
    [
        # a list lacks a share without a word; is empty; the cloud lies that machines do not exist
        (CloudFaultKind.PARTIAL, ["node-0", "node-1"], ["nobody"], 2),
        (CloudFaultKind.EMPTY, [], [], 0),
        (CloudFaultKind.ABSENT, ["node-0", "node-1"], ["nobody", "node-2", "node-3"], 4),
    ],
)
async def test_a_list_is_wrong(
    cloud: Cloud, kind: CloudFaultKind, names: list[str], not_found: list[str], listed: int
) -> None:
    cloud.faults.set(CloudFault(kind, share=0.5))
    reply = await cloud.get("/v1/machines?names=node-0,node-1,node-2,node-3,nobody")
    assert (reply.names, reply.body["not_found"]) == (names, not_found)
    reply = await cloud.get("/v1/machines")
    assert len(reply.names) == listed
    assert reply.body.keys() - {"next_page_token"} == {"items"}
    assert ("next_page_token" in reply.body) is (kind is not CloudFaultKind.EMPTY)


async def test_reads_answer_from_the_past_and_writes_do_not(cloud: Cloud) -> None:
    cloud.faults.set(CloudFault(CloudFaultKind.STALE))
    cloud.state.machines.stop("node-0")
    new = cloud.state.add_machines(1, prefix="new-")[0]
    reply = await cloud.get("/v1/machines?names=node-0,new-0")
    assert reply.body["items"][0]["power"] == "running"
    assert reply.body["not_found"] == ["new-0"]
    made = await cloud.post("/v1/routes", {"cidr": "10.1.0.0/24", "machine_id": new.id})
    assert made.status == 201
    assert (await cloud.get("/v1/routes")).body["items"] == []
    cloud.faults.clear()
    assert len((await cloud.get("/v1/routes")).body["items"]) == 1


async def test_a_write_can_be_done_once_although_its_answer_is_lost(cloud: Cloud) -> None:
    lost = CloudFault(CloudFaultKind.ERROR, operation="Create*", performed=True)
    cloud.faults.set(lost)
    for _ in range(2):
        assert (await cloud.post("/v1/load-balancers", {"name": "a"})).status == 500
    assert (await cloud.get("/v1/load-balancers/a")).status == 200
