"""Who may call, and that every call is counted once under the right names."""

import time

import pytest

from ccm.sandbox.cloud.counters import Counters
from ccm.sandbox.cloud.server import CloudServer
from ccm.sandbox.cloud.service import Tokens

from .calling import Caller


@pytest.mark.parametrize("token", ["", "wrong", "sandbox "])
async def test_a_wrong_token_is_not_known(caller: Caller, token: str) -> None:
    assert (await caller.get("/v1/machines", token=token and f"{token}x")).status == 401


async def test_a_read_only_token_may_not_write(cloud: CloudServer, caller: Caller) -> None:
    token = cloud.tokens.read_only
    assert (await caller.get("/v1/machines", token=token)).status == 200
    reply = await caller.ask("POST", "/v1/load-balancers", {"name": "a"}, token=token)
    assert (reply.status, reply.code) == (403, "AccessDenied")
    assert (await caller.get("/v1/load-balancers/a")).status == 404


async def test_tokens_are_configurable() -> None:
    tokens = Tokens(full="f", read_only="r")
    assert CloudServer(tokens=tokens).tokens is tokens


async def test_the_admin_surface_asks_for_no_token(caller: Caller) -> None:
    assert (await caller.get("/admin/state", token="nothing")).status == 200


async def test_calls_are_counted_by_operation_caller_class_and_status(
    cloud: CloudServer, caller: Caller
) -> None:
    await caller.get("/v1/machines", caller="node-0")
    await caller.get("/v1/machines", caller="node-1")
    await caller.get("/v1/machines", caller="node-1", token="wrong")
    await caller.post("/v1/load-balancers", {"name": "a"})
    await caller.post("/v1/load-balancers", {"name": "a"})
    await caller.get("/v1/load-balancers/a")
    await caller.get("/v1/nothing")
    counters = cloud.counters
    assert counters.count() == 7
    assert (counters.reads, counters.writes) == (5, 2)
    assert counters.count("ListMachines") == 3
    assert counters.count("ListMachines", caller="node-1") == 2
    assert counters.count("ListMachines", caller="node-1", status=401) == 1
    assert counters.count("CreateLoadBalancer", status=201) == 1
    assert counters.count("CreateLoadBalancer", status=409) == 1
    assert counters.count("GetLoadBalancer", "read", "test", 200) == 1
    assert counters.count("Unknown", status=404) == 1


async def test_without_x_caller_the_user_agent_names_the_caller(
    cloud: CloudServer, caller: Caller
) -> None:
    headers = {"User-Agent": "curl/8", "Authorization": "Bearer sandbox"}
    async with caller._session.get(f"{cloud.url}/v1/machines", headers=headers):
        pass
    assert cloud.counters.count(caller="curl/8") == 1


async def test_admin_calls_are_not_counted(cloud: CloudServer, caller: Caller) -> None:
    await caller.get("/admin/machines")
    assert cloud.counters.count() == 0


async def test_the_log_has_wall_and_monotonic_times(cloud: CloudServer, caller: Caller) -> None:
    before = (time.time(), time.monotonic())
    await caller.get("/v1/machines")
    after = (time.time(), time.monotonic())
    [call] = cloud.counters.log
    assert before[0] <= call.wall <= after[0]
    assert before[1] <= call.monotonic <= after[1]
    assert (call.operation, call.status) == ("ListMachines", 200)


def test_the_log_is_bounded_and_the_counts_are_not() -> None:
    counters = Counters(keep=3)
    for _ in range(10):
        counters.answer(counters.arrive("ListMachines", "read", "a", "agent"), 200)
    assert [call.number for call in counters.log] == [8, 9, 10]
    assert counters.reads == 10


def test_a_call_in_the_air_at_a_reset_counts_for_neither() -> None:
    counters = Counters()
    early = counters.arrive("ListMachines", "read", "a", "agent")
    counters.reset()
    counters.answer(early, 200)
    late = counters.arrive("ListMachines", "read", "a", "agent")
    assert counters.count() == 1
    counters.answer(late, 200)
    assert counters.to_json()["rows"] == [
        {"operation": "ListMachines", "budget": "read", "caller": "a", "status": 200, "count": 1}
    ]
