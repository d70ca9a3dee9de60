"""The rate limit answers 429 with Retry-After, for reads and writes apart."""

import pytest

from ccm.sandbox.cloud.limits import Limits, Rate, TokenBucket
from ccm.sandbox.cloud.problems import Problem
from ccm.sandbox.cloud.server import CloudServer

from .calling import Caller, HandClock


async def test_more_reads_than_allowed_are_throttled(
    cloud: CloudServer, caller: Caller, clock: HandClock
) -> None:
    cloud.limits.set("read", Rate(per_second=0.5, burst=3))
    replies = [await caller.get("/v1/machines") for _ in range(5)]
    assert [reply.status for reply in replies] == [200, 200, 200, 429, 429]
    assert replies[3].headers["Retry-After"] == "2"
    assert replies[3].code == "RateLimitExceeded"
    clock.advance(2)
    assert (await caller.get("/v1/machines")).status == 200


async def test_an_answer_says_what_is_left(cloud: CloudServer, caller: Caller) -> None:
    cloud.limits.set("read", Rate(per_second=1, burst=3))
    left = [(await caller.get("/v1/machines")).headers["RateLimit-Remaining"] for _ in range(4)]
    assert left == ["2", "1", "0", "0"]


async def test_reads_do_not_spend_what_writes_have(cloud: CloudServer, caller: Caller) -> None:
    cloud.limits.set("read", Rate(per_second=1, burst=1))
    cloud.limits.set("write", Rate(per_second=1, burst=1))
    await caller.get("/v1/machines")
    assert (await caller.get("/v1/machines")).status == 429
    assert (await caller.post("/v1/load-balancers", {"name": "a"})).status == 201
    assert (await caller.post("/v1/load-balancers", {"name": "b"})).status == 429


async def test_a_refused_call_still_says_what_is_left(cloud: CloudServer, caller: Caller) -> None:
    cloud.limits.set("read", Rate(per_second=1, burst=3))
    reply = await caller.get("/v1/load-balancers/nobody")
    assert (reply.status, reply.headers["RateLimit-Remaining"]) == (404, "2")


async def test_a_wrong_token_spends_nothing(cloud: CloudServer, caller: Caller) -> None:
    cloud.limits.set("read", Rate(per_second=1, burst=1))
    assert (await caller.get("/v1/machines", token="stolen")).status == 401
    assert (await caller.get("/v1/machines")).status == 200


async def test_a_limit_can_be_lifted_while_it_runs(cloud: CloudServer, caller: Caller) -> None:
    cloud.limits.set("read", Rate(per_second=0.001, burst=1))
    await caller.get("/v1/machines")
    assert (await caller.get("/v1/machines")).status == 429
    cloud.limits.set("read", None)
    assert (await caller.get("/v1/machines")).status == 200


def test_a_bucket_never_holds_more_than_its_burst() -> None:
    clock = HandClock()
    bucket = TokenBucket(Rate(per_second=10, burst=2), clock)
    clock.advance(3600)
    assert [bucket.take() > 0 for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize(("per_second", "burst"), [(0, 1), (-1, 1), (1, 0)])
def test_a_rate_that_lets_nothing_through_is_refused(per_second: float, burst: int) -> None:
    with pytest.raises(Problem):
        Rate(per_second, burst)


def test_there_are_two_classes_of_calls() -> None:
    with pytest.raises(Problem, match="read, write"):
        Limits(HandClock()).set("list", None)
