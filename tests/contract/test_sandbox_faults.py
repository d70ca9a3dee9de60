"""What only the sandbox can be made to do: fail on demand."""

import asyncio
import time

import aiohttp
import pytest

from ccm.sandbox.kubernetes.faults import KubeFault
from ccm.sandbox.kubernetes.server import SandboxServer
from tests.contract.client import LEASES, NODES, Api

DROPPED = (aiohttp.ClientError, ConnectionError)


@pytest.fixture
def server(sandbox: SandboxServer) -> SandboxServer:
    """Only the sandbox can be made to do this."""
    return sandbox


async def test_a_throttled_request_says_when_to_come_back(sandbox: SandboxServer, api: Api) -> None:
    sandbox.faults.add(KubeFault("respond", verb="list", status=429, retry_after=7))
    reply = await api.get(NODES)
    assert reply.refusal == (429, "TooManyRequests")
    assert reply.headers["Retry-After"] == "7"
    assert reply.body["details"]["retryAfterSeconds"] == 7
    assert (await api.get(NODES)).status == 200


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "Unauthorized"),
        (403, "Forbidden"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
    ],
)
async def test_any_status_can_be_answered_and_nothing_is_done(
    sandbox: SandboxServer, api: Api, status: int, reason: str
) -> None:
    sandbox.faults.add(KubeFault("respond", verb="create", resource="nodes", status=status))
    name = api.new_name()
    reply = await api.create(NODES, {"metadata": {"name": name}})
    assert reply.refusal == (status, reason)
    assert (await api.get(f"{NODES}/{name}")).status == 404


async def test_faults_spare_and_hit_as_planned(sandbox: SandboxServer, api: Api) -> None:
    number = sandbox.faults.add(KubeFault("respond", verb="list", status=500, skip=1, times=2))
    statuses = [(await api.get(NODES)).status for _ in range(4)]
    assert statuses == [200, 500, 500, 200]
    assert sandbox.faults.hits(number) == 2


async def test_faults_are_for_a_resource_a_name_and_a_client(
    sandbox: SandboxServer, api: Api
) -> None:
    fault = KubeFault("respond", resource="nodes", name="a", user_agent="contract", times=None)
    number = sandbox.faults.add(fault)
    assert (await api.get(LEASES)).status == 200
    assert (await api.get(f"{NODES}/b")).status == 404
    assert (await api.get(f"{NODES}/a")).status == 429
    other = {"User-Agent": "other"}
    assert (await api.call("GET", f"{NODES}/a", headers=other)).status == 404
    assert sandbox.faults.remove(number)
    assert (await api.get(f"{NODES}/a")).status == 404


async def test_latency_delays_and_then_answers(sandbox: SandboxServer, api: Api) -> None:
    sandbox.faults.add(KubeFault("delay", verb="list", seconds=0.2))
    began = time.monotonic()
    assert (await api.get(NODES)).status == 200
    assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize(("when", "status"), [("before", 404), ("after", 200), ("middle", 200)])
async def test_a_reset_write_is_done_or_not_as_planned(
    sandbox: SandboxServer, api: Api, when: str, status: int
) -> None:
    name = api.new_name()
    body = {"metadata": {"name": name}}
    fault = KubeFault.parse({"action": "reset", "verb": "create", "when": when, "times": None})
    sandbox.faults.add(fault)
    with pytest.raises(DROPPED):
        await api.create(NODES, body)
    sandbox.faults.clear()
    assert (await api.get(f"{NODES}/{name}")).status == status


async def test_a_half_open_request_hears_nothing(sandbox: SandboxServer, api: Api) -> None:
    sandbox.faults.add(KubeFault("silence", verb="get"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await api.get(f"{NODES}/a")
    assert (await api.get(f"{NODES}/a")).status == 404
    assert [request.status for request in sandbox.requests] == [0, 404]


async def test_a_half_open_watch_is_accepted_and_silent(sandbox: SandboxServer, api: Api) -> None:
    sandbox.faults.add(KubeFault("silence", verb="watch"))
    async with api.watch_from_now(NODES) as watch:
        await api.new(NODES)
        with pytest.raises(TimeoutError):
            await watch.next(within=0.2)


async def test_an_open_watch_can_fall_silent(sandbox: SandboxServer, api: Api) -> None:
    sandbox.faults.add(KubeFault("silence", verb="event", resource="nodes", skip=1))
    async with api.watch_from_now(NODES) as watch:
        first = await api.new(NODES)
        assert (await watch.next()).seen == ("ADDED", first.name)
        await api.new(NODES)
        with pytest.raises(TimeoutError):
            await watch.next(within=0.2)


async def test_a_watch_can_be_cut_in_the_middle_of_an_event(
    sandbox: SandboxServer, api: Api
) -> None:
    sandbox.faults.add(KubeFault("reset", verb="event", when="middle"))
    async with api.watch_from_now(NODES) as watch:
        await api.new(NODES)
        with pytest.raises(DROPPED):
            await watch.next()


async def test_a_watch_can_be_told_that_its_version_is_gone(
    sandbox: SandboxServer, api: Api
) -> None:
    for verb in ("watch", "event"):
        sandbox.faults.add(KubeFault("gone", verb=verb))
        async with api.watch_from_now(NODES) as watch:
            await api.new(NODES)
            events = await watch.rest()
        assert [(event.type, event.object["code"]) for event in events] == [("ERROR", 410)]


async def test_a_list_can_be_told_that_its_version_is_gone(
    sandbox: SandboxServer, api: Api
) -> None:
    sandbox.faults.add(KubeFault("gone", verb="list"))
    assert (await api.get(NODES)).refusal == (410, "Expired")


async def test_garbage_comes_between_good_events(sandbox: SandboxServer, api: Api) -> None:
    for text in ("", "{not json"):
        sandbox.faults.add(KubeFault("garbage", verb="event", text=text))
    async with api.watch_from_now(NODES) as watch:
        first, second = await api.new(NODES), await api.new(NODES)
        garbage = await watch.next()
        assert garbage.object["metadata"] == "garbage"
        assert (await watch.next()).seen == ("ADDED", first.name)
        assert await watch.response.content.readline() == b"{not json\n"
        assert (await watch.next()).seen == ("ADDED", second.name)


async def test_garbage_comes_before_the_items_of_a_list(sandbox: SandboxServer, api: Api) -> None:
    node = await api.new(NODES)
    sandbox.faults.add(KubeFault("garbage", verb="list"))
    items = (await api.get(NODES)).body["items"]
    assert items[0]["metadata"] == "garbage"
    assert items[1]["metadata"]["name"] == node.name


@pytest.mark.parametrize(
    "raw", [{"action": "unknown"}, {"verb": "list"}, {"action": "delay", "sconds": 1}]
)
def test_a_fault_that_makes_no_sense_is_refused(raw: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"action must be|unknown fields"):
        KubeFault.parse(raw)
