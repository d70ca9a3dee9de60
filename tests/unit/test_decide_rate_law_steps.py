"""The law of rates step by step, in numbers; `test_decide_rate_law` shows what comes of it."""

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace

import pytest

from ccm.decide.rate_law import (
    LONGEST_BACKOFF,
    LONGEST_RETRY_AFTER,
    LONGEST_WINDOW,
    Bracket,
    Bucket,
    Run,
    next_token_in,
    refill,
    remaining,
    spend,
    throttled,
)

FULL = Bucket.new(10.0, 40.0, 100.0)
EMPTY = spend(FULL, 40)
CAPPED = replace(EMPTY, left=5.0, cap=2.0, capped_until=110.0)


def numbers(value: object) -> Iterator[object]:
    """All that a bucket is made of."""
    if is_dataclass(value):
        for each in fields(value):
            yield from numbers(getattr(value, each.name))
    else:
        yield value


def same(bucket: Bucket, expected: Bucket) -> bool:
    return [*numbers(bucket)] == pytest.approx([*numbers(expected)])


def test_a_new_bucket_is_full() -> None:
    assert same(FULL, Bucket(10.0, 40.0, 10.0, 40.0, 40.0, 100.0))
    assert same(EMPTY, replace(FULL, tokens=0.0, run=Run(40.0)))
    assert same(spend(EMPTY, 2), replace(FULL, tokens=-2.0, run=Run(42.0)))


@pytest.mark.parametrize(
    ("bucket", "now", "tokens", "seconds", "flowing"),
    [
        pytest.param(EMPTY, 101.5, 15.0, 1.5, 1.5, id="flows"),
        pytest.param(EMPTY, 105.0, 40.0, 4.0, 4.0, id="until-it-is-full"),
        pytest.param(FULL, 105.0, 40.0, 0.0, 0.0, id="is-full"),
        pytest.param(EMPTY, 100.0, 0.0, 0.0, 0.0, id="no-time"),
        pytest.param(replace(EMPTY, open_until=102.0), 103.0, 10.0, 3.0, 1.0, id="open-first"),
        pytest.param(replace(EMPTY, open_until=105.0), 103.0, 0.0, 3.0, 0.0, id="open"),
        pytest.param(replace(EMPTY, open_until=99.0), 103.0, 30.0, 3.0, 3.0, id="open-before"),
        pytest.param(CAPPED, 102.0, 4.0, 0.4, 0.4, id="capped"),
        pytest.param(CAPPED, 109.0, 5.0, 0.5, 0.5, id="no-more-than-what-is-left"),
        pytest.param(CAPPED, 110.0, 20.0, 2.0, 2.0, id="the-cap-is-over"),
        pytest.param(replace(CAPPED, capped_until=104.0), 106.0, 28.0, 2.8, 2.8, id="capped-first"),
        pytest.param(replace(CAPPED, cap=50.0), 100.2, 2.0, 0.2, 0.2, id="a-cap-above-the-rate"),
        pytest.param(replace(CAPPED, left=99.0), 109.0, 18.0, 1.8, 1.8, id="more-left"),
        pytest.param(
            replace(CAPPED, left=50.0, open_until=103.0),
            106.0,
            6.0,
            3.6,
            0.6,
            id="open-then-capped",
        ),
        pytest.param(
            replace(CAPPED, capped_until=102.0, open_until=103.0), 104.0, 10.0, 4.0, 1.0, id="both"
        ),
        pytest.param(replace(FULL, burst=30.0, at=100.0), 100.0, 40.0, 0.0, 0.0, id="too-many"),
    ],
)
def test_tokens_flow_in(
    bucket: Bucket, now: float, tokens: float, seconds: float, flowing: float
) -> None:
    after, passed = refill(bucket, now), now - 100.0
    run = Run(bucket.run.calls * math.exp(-passed / 5.0), seconds, flowing)
    burst = bucket.burst if bucket.burst == 40.0 else after.burst
    assert same(after, replace(bucket, at=now, tokens=tokens, run=run, age=flowing, burst=burst))


def test_an_earlier_moment_changes_nothing() -> None:
    assert same(refill(EMPTY, 99.0), EMPTY)


def test_what_went_before_fades() -> None:
    bucket = replace(EMPTY, run=Run(30.0, 20.0, 10.0), age=7.0)
    after, fade = refill(bucket, 102.0), math.exp(-2.0 / 5.0)
    assert [*numbers(after.run)] == pytest.approx([30 * fade, 20 * fade + 2.0, 10 * fade + 2.0])
    assert after.age == pytest.approx(9.0)


def test_a_lowered_burst_comes_back_in_an_hour() -> None:
    lowered = replace(EMPTY, burst=10.0)
    assert refill(lowered, 460.0).burst == pytest.approx(14.0)
    assert refill(lowered, 9999.0).burst == 40.0


@pytest.mark.parametrize(
    ("age", "rate"), [(0.0, 5.75), (1.0, 6.0), (2.0, 6.25), (3.0, 8.0), (9.0, 10.0)]
)
def test_the_rate_follows_its_curve(age: float, rate: float) -> None:
    bucket = replace(EMPTY, bracket=Bracket(4.0, 6.0, 2.0), rate=4.0, age=age)
    after = refill(bucket, 101.0)
    assert (after.tokens, after.rate, after.age) == pytest.approx((4.0, rate, age + 1.0))


# Refusals.

BUSY = spend(refill(EMPTY, 102.0), 20)  # all that flowed in is spent
CALLS = 40 * math.exp(-2.0 / 5.0) + 20


@pytest.mark.parametrize(
    ("seconds", "open_for"),
    [(None, 1.0), (3.0, 3.0), (0.0, 0.0), (-3.0, 0.0), (1e9, LONGEST_RETRY_AFTER)],
)
def test_a_refusal_of_a_burst_lowers_the_burst(seconds: float | None, open_for: float) -> None:
    after = throttled(BUSY, seconds, 102.0, 102.0)
    assert after.episode
    assert same(
        after,
        replace(
            BUSY,
            run=Run(),
            open_until=102.0 + open_for,
            burst=0.8 * (CALLS - 1),
            episodes=1,
            episode=replace(after.episode, at=102.0, rate=10.0, burst=40.0, was_burst=True),
        ),
    )
    assert [*numbers(after.episode.run)] == pytest.approx([CALLS, 2.0, 2.0])
    assert after.episode.refused == 1


@pytest.mark.parametrize(
    ("granted", "seconds", "refused", "open_until"),
    [(101.9, 5.0, 2, 107.2), (102.0, 1.0, 2, 105.0), (102.1, 5.0, 1, 107.2)],
)
def test_what_was_under_way_together_is_one_episode(
    granted: float, seconds: float, refused: int, open_until: float
) -> None:
    first = throttled(BUSY, 3.0, 102.0, 102.0)
    after = throttled(first, seconds, 102.2, granted)
    assert after.episode
    assert (after.episode.refused, after.episodes) == (refused, 3 - refused)
    assert after.open_until == pytest.approx(open_until)
    if refused == 2:
        assert after.burst == pytest.approx(0.8 * (CALLS - 2))


def test_tokens_are_gone_with_a_refusal_and_debts_are_not() -> None:
    assert throttled(replace(BUSY, tokens=5.0), 1.0, 102.0, 102.0).tokens == 0.0
    assert throttled(replace(BUSY, tokens=-5.0), 1.0, 102.0, 102.0).tokens == -5.0


def test_refusals_in_a_row_wait_twice_as_long_each_time() -> None:
    bucket, now, waits = replace(BUSY, age=0.0), 102.0, []
    for _ in range(7):
        bucket = throttled(bucket, None, now, now)
        waits.append(bucket.open_until - now)
        now = bucket.open_until + 0.1
    assert waits == pytest.approx([1, 2, 4, 8, 16, LONGEST_BACKOFF, LONGEST_BACKOFF])
    assert bucket.row == 6
    bucket = refill(bucket, now)
    late = throttled(replace(bucket, age=2.0), None, now, now)
    assert late.row == 0
    assert late.open_until - now == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("rate", "run", "open_for", "low", "middle", "steep"),
    [
        pytest.param(10.0, Run(60.0, 8.0, 6.0), 1.0, 7.375, 8.5517737, 5.0869945, id="wide"),
        pytest.param(10.0, Run(10.0, 8.0, 6.0), 1.0, 2.5, 3.5355339, 2.3899494, id="too-little"),
        pytest.param(10.0, Run(60.0, 8.0, 6.0), 50.0, 7.375, 8.5517737, 50.0, id="long-open"),
        pytest.param(10.0, Run(60.0, 8.0, 6.0), 3600.0, 7.375, 8.5517737, 60.0, id="an-hour"),
        pytest.param(1.0, Run(8.0, 8.0, 8.0), 1.0, 0.875, 0.904703, 205.0854438, id="slow"),
        pytest.param(10.0, Run(79.0, 8.0, 8.0), 1.0, 9.7, 10.0, 23.3333333, id="narrow"),
        pytest.param(10.0, Run(40.0, 12.0, 3.9), 1.0, 3.25, 4.5961941, 2.3899494, id="others-too"),
        pytest.param(10.0, Run(4.0, 0.5, 0.4), 1.0, 6.0, 7.2084342, 4.1755718, id="short"),
        pytest.param(0.2, Run(0.0, 8.0, 8.0), 1.0, 0.1, 0.1414214, 16.4852814, id="lowest"),
    ],
)
def test_a_refusal_of_the_flow_brackets_the_rate(
    rate: float, run: Run, open_for: float, low: float, middle: float, steep: float
) -> None:
    bucket = replace(EMPTY, rate=rate, bracket=Bracket(rate, rate, 1.0), run=run)
    after = throttled(bucket, open_for, 100.0, 100.0)
    assert after.bracket
    assert [*numbers(after.bracket)] == pytest.approx([low, middle, steep], rel=1e-5)
    assert (after.rate, after.age, after.burst) == (after.bracket.low, 0.0, 40.0)
    assert after.episode
    assert not after.episode.was_burst


@pytest.mark.parametrize(
    ("calls", "flowing", "late", "was_burst"),
    [
        (20.1, 1.0, 0.0, True),
        (20.0, 1.0, 0.0, False),
        (19.9, 1.0, 0.0, False),
        (25.1, 1.5, 0.5, True),
        (24.9, 1.5, 0.5, False),
        (5.1, 0.2, 0.5, True),
        (4.9, 0.2, 0.5, False),
    ],
)
def test_a_burst_is_when_most_calls_came_out_of_the_stock(
    calls: float, flowing: float, late: float, was_burst: bool
) -> None:
    bucket = replace(EMPTY, run=Run(calls, 9.0, flowing))
    after = throttled(bucket, 1.0, 100.0, 100.0 - late)
    assert after.episode
    assert after.episode.was_burst == was_burst


@pytest.mark.parametrize(
    ("rate", "calls", "burst"), [(10.0, 11.0, 8.0), (10.0, 1.5, 1.0), (80.0, 3.0, 4.0)]
)
def test_a_burst_is_never_less_than_one_call_or_those_of_a_moment(
    rate: float, calls: float, burst: float
) -> None:
    bucket = replace(EMPTY, full=rate, rate=rate, run=Run(calls))
    assert throttled(bucket, 1.0, 100.0, 100.0).burst == pytest.approx(burst)
    assert throttled(replace(bucket, burst=0.5), 1.0, 100.0, 100.0).burst == 0.5


# What the cloud says is left.

LEAST_CAP = 1.0 / LONGEST_RETRY_AFTER


@pytest.mark.parametrize(
    ("calls", "seconds", "tokens", "cap", "until", "open_until"),
    [
        (3, 60.0, 3.0, 0.05, 160.0, 0.0),
        (50, 20.0, 40.0, 2.5, 120.0, 0.0),
        (3, 0.0, 3.0, math.inf, 100.0, 0.0),
        (0, 60.0, 0.0, LEAST_CAP, 160.0, 160.0),
        (36, 1e9, 36.0, 0.01, 100.0 + LONGEST_WINDOW, 0.0),
        (1, 1e9, 1.0, LEAST_CAP, 100.0 + LONGEST_WINDOW, 0.0),
        (0, 1e9, 0.0, LEAST_CAP, 100.0 + LONGEST_RETRY_AFTER, 100.0 + LONGEST_RETRY_AFTER),
    ],
)
def test_what_is_left_is_had_at_most_and_lasts(
    calls: int, seconds: float, tokens: float, cap: float, until: float, open_until: float
) -> None:
    expected = replace(
        FULL, tokens=tokens, left=calls, cap=cap, capped_until=until, open_until=open_until
    )
    assert same(remaining(FULL, calls, seconds, 100.0), expected)


def test_none_left_does_not_shorten_a_longer_wait() -> None:
    assert remaining(replace(FULL, open_until=500.0), 0, 60.0, 100.0).open_until == 500.0
    assert remaining(EMPTY, 30, 60.0, 101.0).tokens == 10.0


@pytest.mark.parametrize(
    ("bucket", "seconds"),
    [
        (FULL, 0.0),
        (replace(FULL, tokens=1.0), 0.0),
        (EMPTY, 0.1),
        (replace(EMPTY, tokens=-1.0), 0.2),
        (replace(EMPTY, open_until=103.0), 3.1),
        (replace(FULL, open_until=103.0), 3.0),
        (replace(FULL, open_until=99.0), 0.0),
        (CAPPED, 0.5),
        (replace(CAPPED, cap=50.0), 0.1),
        (replace(CAPPED, tokens=-19.0), 10.0),
        (replace(CAPPED, tokens=-20.0), 10.1),
        (replace(CAPPED, capped_until=100.0), 0.1),
        (replace(CAPPED, open_until=104.0), 4.5),
        (replace(CAPPED, open_until=104.0, tokens=-12.0), 10.1),
    ],
)
def test_the_next_call_can_be_made_in(bucket: Bucket, seconds: float) -> None:
    assert next_token_in(bucket, 100.0) == pytest.approx(seconds)
