"""Who may call and how often, and that every call is counted once under the right names."""

import pytest

from ccm.sandbox.cloud.service import CallCounters
from ccm.sandbox.cloud.simulation import CallRate

from .conftest import Cloud, HandClock


@pytest.mark.parametrize("token", ["", "wrong", "sandbox "])
async def test_a_wrong_token_is_not_known(cloud: Cloud, token: str) -> None:
    assert (await cloud.get("/v1/machines", token=token and f"{token}x")).status == 401


async def test_calls_are_counted_by_operation_caller_class_and_status(cloud: Cloud) -> None:
    await cloud.get("/v1/machines", caller="node-0")
    await cloud.get("/v1/machines", caller="node-1")
    await cloud.get("/v1/machines", caller="node-1", token="wrong")
    await cloud.post("/v1/load-balancers", {"name": "a"})
    await cloud.post("/v1/load-balancers", {"name": "a"})
    await cloud.get("/v1/load-balancers/a")
    await cloud.get("/v1/nothing")
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


def test_the_log_is_bounded_and_the_counts_are_not() -> None:
    counters = CallCounters(keep=3)
    for _ in range(10):
        counters.answer(counters.arrive("ListMachines", "read", "a", "agent"), 200)
    assert [call.number for call in counters.log] == [8, 9, 10]
    assert counters.reads == 10


def test_a_call_in_the_air_at_a_reset_counts_for_neither() -> None:
    counters = CallCounters()
    early = counters.arrive("ListMachines", "read", "a", "agent")
    counters.reset()
    counters.answer(early, 200)
    late = counters.arrive("ListMachines", "read", "a", "agent")
    assert counters.count() == 1
    counters.answer(late, 200)
    assert counters.to_json()["rows"] == [
        {"operation": "ListMachines", "budget": "read", "caller": "a", "status": 200, "count": 1}
    ]


# --- the rate limit: 429 with Retry-After, for reads and writes apart


async def test_more_reads_than_allowed_are_throttled_until_the_limit_is_lifted(
    cloud: Cloud, clock: HandClock
) -> None:
    cloud.limits.set("read", CallRate(per_second=0.5, burst=3))
    replies = [await cloud.get("/v1/machines") for _ in range(5)]
    assert [reply.status for reply in replies] == [200, 200, 200, 429, 429]
    assert replies[3].headers["Retry-After"] == "2"
    assert replies[3].code == "RateLimitExceeded"
    clock.advance(3600)  # the bucket never holds more than its burst
    assert [(await cloud.get("/v1/machines")).status for _ in range(4)] == [200, 200, 200, 429]
    clock.advance(2)
    assert [(await cloud.get("/v1/machines")).status for _ in range(2)] == [200, 429]
    cloud.limits.set("read", None)
    assert (await cloud.get("/v1/machines")).status == 200
