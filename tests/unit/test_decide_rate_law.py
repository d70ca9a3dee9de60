"""What a bucket learns from refusals: many model clouds, few refusals, most of the rate used.

The first ten seconds are for learning and do not count.
"""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.decide.rate_law import Bucket, next_token_in, refill, remaining, spend
from tests.support.properties import examples

from .model_cloud import (
    FixedWindow,
    Limit,
    RetryAfter,
    SlidingWindow,
    TokenBucket,
    World,
)

LIMIT = 20.0  # what every cloud here allows a second


def world(limit: Limit, declared: float, **settings: object) -> World:
    """A world whose provider declares a rate, and a burst of two seconds of it."""
    return World(limit, Bucket.new(declared, 2 * declared, 0.0), **settings)  # type: ignore[arg-type]


TOKEN_BUCKETS: dict[str, Callable[[], Limit]] = {
    "a-second-at-once": lambda: TokenBucket(LIMIT, 20),
    "two-seconds-at-once": lambda: TokenBucket(LIMIT, 40),
    "five-seconds-at-once": lambda: TokenBucket(LIMIT, 100),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("latency", [0.004, 0.1])
@pytest.mark.parametrize("declared", [20.0, 40.0, 100.0])
@pytest.mark.parametrize("limit", TOKEN_BUCKETS.values(), ids=TOKEN_BUCKETS.keys())
def test_a_token_bucket_is_used_up_and_hardly_ever_overdrawn(
    limit: Callable[[], Limit], declared: float, latency: float, seed: int
) -> None:
    w = world(limit(), declared, latency=latency, seed=seed)
    w.run(120.0)
    assert w.throttled_share(10.0, 60.0) <= 0.01
    assert w.throttled_share(60.0, 120.0) <= 0.01
    assert w.per_second(10.0, 60.0) >= 0.95 * LIMIT
    assert w.per_second(60.0, 120.0) >= 0.97 * LIMIT


@pytest.mark.parametrize("retry_after", [float, lambda _: None], ids=["exactly", "not-said"])
@pytest.mark.parametrize("declared", [20.0, 100.0])
def test_whatever_the_cloud_says_on_when_to_come_back(
    retry_after: RetryAfter, declared: float
) -> None:
    w = world(TokenBucket(LIMIT, 20), declared, retry_after=retry_after)
    w.run(120.0)
    assert w.throttled_share(10.0, 60.0) <= 0.01
    assert w.per_second(10.0, 60.0) >= 0.95 * LIMIT
    assert w.throttled_share(60.0, 120.0) <= 0.01


@pytest.mark.parametrize("declared", [20.0, 100.0])
@pytest.mark.parametrize(
    "limit",
    [
        lambda: SlidingWindow(20, 1.0),
        lambda: SlidingWindow(200, 10.0),
        lambda: FixedWindow(20, 1.0),
        lambda: FixedWindow(200, 10.0),
        lambda: TokenBucket(LIMIT, 5),
    ],
    ids=["sliding-1s", "sliding-10s", "fixed-1s", "fixed-10s", "tiny-burst"],
)
def test_a_cloud_that_gives_no_credit_is_used_well_too(
    limit: Callable[[], Limit], declared: float
) -> None:
    """A second in which we are sent away is lost there, and a call a bit too early is refused."""
    w = world(limit(), declared)
    w.run(240.0)
    assert w.throttled_share(10.0, 60.0) <= 0.01
    assert w.throttled_share(60.0, 240.0) <= 0.01
    assert w.per_second(10.0, 60.0) >= 0.80 * LIMIT
    assert w.per_second(60.0, 240.0) >= 0.88 * LIMIT


@pytest.mark.parametrize(
    "limit",
    [lambda: SlidingWindow(1200, 60.0), lambda: FixedWindow(1200, 60.0)],
    ids=["sliding", "fixed"],
)
def test_a_cloud_that_sends_us_away_for_long_is_probed_at_that_pace(
    limit: Callable[[], Limit],
) -> None:
    w = world(limit(), 100.0, latency=0.1)
    w.run(900.0)
    assert w.throttled_share(300.0, 900.0) <= 0.01
    assert w.per_second(300.0, 900.0) >= 0.9 * LIMIT


@pytest.mark.parametrize("declared", [10.0, 19.0])
def test_a_declared_rate_that_is_too_low_is_kept(declared: float) -> None:
    w = world(TokenBucket(LIMIT, 100), declared)
    w.run(120.0)
    assert w.throttled_share(0.0, 120.0) == 0.0
    assert w.per_second(10.0, 120.0) == pytest.approx(declared, rel=0.01)


@pytest.mark.parametrize("declared", [20.0, 100.0])
def test_a_tenant_gets_its_half_and_we_get_it_back(declared: float) -> None:
    w = world(TokenBucket(LIMIT, 20), declared)
    w.tenant(LIMIT / 2, 60.0, 180.0)
    w.run(360.0)
    assert w.throttled_share(60.0, 80.0) <= 0.05
    assert w.throttled_share(80.0, 180.0) <= 0.01
    assert w.per_second(80.0, 180.0) >= 0.9 * LIMIT / 2
    assert w.throttled_share(180.0, 360.0) <= 0.01
    assert w.per_second(300.0, 360.0) >= 0.95 * LIMIT


@pytest.mark.parametrize(("limit", "declared"), [(1.0, 5.0), (200.0, 1000.0), (2.0, 100.0)])
def test_slow_and_fast_quotas_are_learnt_alike(limit: float, declared: float) -> None:
    w = world(TokenBucket(limit, max(int(limit), 5)), declared, callers=100)
    end = 120.0 + 600.0 / limit
    w.run(end)
    assert w.throttled_share(60.0, end) <= 0.01
    assert w.per_second(60.0, end) >= 0.9 * limit


class Outage:
    """A token bucket that refuses everything for a while."""

    def __init__(self, begin: float, end: float) -> None:
        self._begin, self._end = begin, end
        self._inner = TokenBucket(LIMIT, 20)

    def wait(self, now: float) -> float:
        return 1.0 if self._begin <= now < self._end else self._inner.wait(now)


@pytest.mark.parametrize("retry_after", [math.ceil, lambda _: None], ids=["whole", "not-said"])
def test_an_outage_is_met_with_few_calls_and_soon_forgotten(retry_after: RetryAfter) -> None:
    w = world(Outage(30.0, 90.0), LIMIT, retry_after=retry_after)
    w.run(240.0)
    during = [at for at, _ in w.seen if 32.0 <= at < 90.0]
    assert len(during) <= 62
    assert w.per_second(150.0, 240.0) >= 0.9 * LIMIT


class LastingOutage(Outage):
    """One that ends with a word to come back in an hour."""

    def __init__(self, begin: float, end: float) -> None:
        super().__init__(begin, end)
        self._end, self._has_said = end, False

    def wait(self, now: float) -> float:
        if now >= self._end and not self._has_said:
            self._has_said = True
            return 3600.0
        return super().wait(now)


def test_one_answer_that_sends_us_away_for_an_hour_does_not_slow_us_for_hours() -> None:
    limit = LastingOutage(30.0, 75.0)
    w = world(limit, LIMIT, retry_after=lambda wait: wait if wait > 60.0 else None)
    w.run(3600.0 + 1500.0)
    assert w.per_second(3600.0 + 900.0, 3600.0 + 1500.0) >= 0.9 * LIMIT


@examples(15)
@given(
    declared=st.floats(15.0, 200.0),
    burst=st.integers(10, 200),
    latency=st.floats(0.001, 0.3),
    callers=st.integers(25, 100),
    seed=st.integers(0, 1000),
)
def test_any_token_bucket_is_learnt(
    declared: float, burst: int, latency: float, callers: int, seed: int
) -> None:
    w = world(TokenBucket(LIMIT, burst), declared, latency=latency, callers=callers, seed=seed)
    w.run(150.0)
    assert w.throttled_share(30.0, 150.0) <= 0.015
    assert w.per_second(30.0, 150.0) >= 0.85 * min(LIMIT, declared)


def test_what_the_cloud_has_left_is_had_and_lasts_until_there_is_more() -> None:
    bucket = remaining(Bucket.new(10.0, 100.0, 0.0), 3, 60.0, 0.0)
    assert bucket.tokens == 3
    bucket = spend(bucket, 3)
    assert next_token_in(bucket, 0.0) == pytest.approx(20.0)
    assert refill(bucket, 20.0).tokens == pytest.approx(1.0)
    assert refill(bucket, 61.0).tokens == pytest.approx(3.0 + 10.0)
    known = remaining(refill(bucket, 20.0), 5000, 60.0, 20.0)
    assert refill(known, 21.0).tokens == pytest.approx(11.0), "with many left nothing is slower"


def test_with_none_left_no_one_asks_until_there_is_one() -> None:
    bucket = remaining(Bucket.new(10.0, 100.0, 0.0), 0, 60.0, 0.0)
    assert (bucket.tokens, bucket.open_until) == (0, 60.0)
    assert next_token_in(bucket, 0.0) == pytest.approx(60.1)
    assert refill(bucket, 60.5).tokens == pytest.approx(5.0)
    assert remaining(bucket, 10, 5.0, 61.0).open_until == 60.0


@given(
    st.integers(0, 20),
    st.floats(0.0, 200.0),
    st.lists(st.floats(0.0, 90.0), min_size=1, max_size=9),
)
def test_what_is_said_to_be_left_is_never_overdrawn_before_there_is_more(
    calls: int, seconds: float, waits: list[float]
) -> None:
    bucket, now, spent = remaining(Bucket.new(10.0, 50.0, 0.0), calls, seconds, 0.0), 0.0, 0
    for wait in waits:
        now += wait
        if now >= seconds:
            break
        bucket = refill(bucket, now)
        whole = 0 if now < bucket.open_until else int(bucket.tokens)
        bucket, spent = spend(bucket, whole), spent + whole
        bucket = remaining(bucket, max(calls - spent, 0), seconds - now, now)
    assert spent <= calls


@given(st.integers(0, 9), st.floats(0.1, 100.0), st.floats(0.0, 100.0))
def test_the_next_token_comes_when_it_is_said_to(calls: int, seconds: float, now: float) -> None:
    bucket = remaining(Bucket.new(2.0, 50.0, 0.0), calls, seconds, 0.0)
    bucket = spend(refill(bucket, now), int(refill(bucket, now).tokens))
    wait = next_token_in(bucket, now)
    assert refill(bucket, now + wait).tokens == pytest.approx(1.0, abs=0.01)
