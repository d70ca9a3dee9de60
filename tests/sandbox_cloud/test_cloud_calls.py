"""Who may call and how often, and that every call is counted once under the right names."""

import time

import pytest

from ccm.sandbox.cloud.codec import CloudApiError
from ccm.sandbox.cloud.service import CallCounters, Tokens
from ccm.sandbox.cloud.simulation import CallRate, RateLimiter

from .conftest import Cloud, HandClock


@pytest.mark.parametrize("token", ["", "wrong", "sandbox "])
async def test_a_wrong_token_is_not_known(cloud: Cloud, token: str) -> None:
    assert (await cloud.get("/v1/machines", token=token and f"{token}x")).status == 401


async def test_a_read_only_token_may_not_write(cloud: Cloud) -> None:
    token = "r"
    cloud.tokens = Tokens(full="sandbox", read_only=token)
    assert (await cloud.get("/v1/machines", token=token)).status == 200
    reply = await cloud.ask("POST", "/v1/load-balancers", {"name": "a"}, token=token)
    assert (reply.status, reply.code) == (403, "AccessDenied")
    assert (await cloud.get("/v1/load-balancers/a")).status == 404


async def test_the_admin_surface_asks_for_no_token_and_is_not_counted(cloud: Cloud) -> None:
    assert (await cloud.get("/admin/state", token="nothing")).status == 200
    assert cloud.counters.count() == 0


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


async def test_a_call_is_logged_with_its_times_and_its_user_agent_without_x_caller(
    cloud: Cloud,
) -> None:
    headers = {"User-Agent": "curl/8", "Authorization": "Bearer sandbox"}
    before = (time.time(), time.monotonic())
    async with cloud.session.get(f"{cloud.url}/v1/machines", headers=headers):
        pass
    after = (time.time(), time.monotonic())
    [call] = cloud.counters.log
    assert before[0] <= call.wall <= after[0]
    assert before[1] <= call.monotonic <= after[1]
    assert (call.operation, call.status, call.caller) == ("ListMachines", 200, "curl/8")
    assert cloud.counters.count(caller="curl/8") == 1


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
    left = [reply.headers["RateLimit-Remaining"] for reply in replies]
    assert left == ["2", "1", "0", "0", "0"]
    clock.advance(3600)  # the bucket never holds more than its burst
    assert [(await cloud.get("/v1/machines")).status for _ in range(4)] == [200, 200, 200, 429]
    clock.advance(2)
    assert [(await cloud.get("/v1/machines")).status for _ in range(2)] == [200, 429]
    cloud.limits.set("read", None)
    assert (await cloud.get("/v1/machines")).status == 200


async def test_reads_do_not_spend_what_writes_have(cloud: Cloud) -> None:
    cloud.limits.set("read", CallRate(per_second=1, burst=1))
    cloud.limits.set("write", CallRate(per_second=1, burst=1))
    await cloud.get("/v1/machines")
    assert (await cloud.get("/v1/machines")).status == 429
    assert (await cloud.post("/v1/load-balancers", {"name": "a"})).status == 201
    assert (await cloud.post("/v1/load-balancers", {"name": "b"})).status == 429


async def test_a_refused_call_still_says_what_is_left_and_a_wrong_token_spends_nothing(
    cloud: Cloud,
) -> None:
    cloud.limits.set("read", CallRate(per_second=1, burst=3))
    assert (await cloud.get("/v1/machines", token="stolen")).status == 401
    reply = await cloud.get("/v1/load-balancers/nobody")
    assert (reply.status, reply.headers["RateLimit-Remaining"]) == (404, "2")


@pytest.mark.parametrize(("per_second", "burst"), [(0, 1), (-1, 1), (1, 0)])
def test_a_rate_that_lets_nothing_through_is_refused(per_second: float, burst: int) -> None:
    with pytest.raises(CloudApiError):
        CallRate(per_second, burst)
    with pytest.raises(CloudApiError, match="read, write"):
        RateLimiter(HandClock()).set("list", None)
