"""The shared cloud budget: how much is given, to whom, and what a throttling answer does."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.decide.budget import (
    AGEING,
    FLOOR,
    RECOVERY,
    Ask,
    Bucket,
    Grant,
    Priority,
    next_token_in,
    refill,
    share_out,
    throttled,
)


def ask(
    asker: str, priority: Priority = Priority.ROUTE, count: int = 1, since: float = 100.0
) -> Ask:
    return Ask(asker, 1, "read", priority, count, since)


def bucket(per_second: float = 10.0, burst: int = 5, now: float = 100.0) -> Bucket:
    return Bucket.new(per_second, burst, now)


def given_out(full: Bucket, asks: list[Ask], now: float) -> list[tuple[str, int]]:
    return [(grant.ask.asker, grant.count) for grant in share_out(full, asks, now)]


# How much.


def spend(purse: Bucket, count: int, now: float) -> tuple[Bucket, int]:
    """What is left after an ask for `count`, and how many calls it got."""
    purse = refill(purse, now)
    granted = sum(grant.count for grant in share_out(purse, [ask("a", count=count)], now))
    return replace(purse, tokens=purse.tokens - granted), granted


moments = st.tuples(
    st.floats(0, 30),
    st.one_of(st.integers(0, 100), st.none() | st.floats(0, 20)).map(
        lambda value: value if isinstance(value, int) else ("throttled", value)
    ),
)


@given(st.floats(0.01, 100), st.integers(1, 50), st.lists(moments, max_size=25))
def test_no_interval_sees_more_than_the_burst_and_the_rate(
    rate: float, burst: int, history: list[tuple[float, int | tuple[str, float | None]]]
) -> None:
    now, purse = 100.0, bucket(rate, burst)
    granted: list[tuple[float, int]] = []
    for passed, what in history:
        now += passed
        if isinstance(what, tuple):
            purse = throttled(purse, what[1], now)
            continue
        purse, count = spend(purse, what, now)
        granted.append((now, count))
    for first, (begin, _) in enumerate(granted):
        total = 0
        for end, count in granted[first:]:
            total += count
            assert total <= burst + rate * (end - begin) + 1e-6


@given(st.floats(0.1, 100), st.integers(1, 50), st.floats(0, 1000))
def test_a_bucket_fills_to_its_burst_and_no_further(rate: float, burst: int, idle: float) -> None:
    emptied, _ = spend(bucket(rate, burst), burst, 100.0)
    _, granted = spend(emptied, burst * 2, 100.0 + idle)
    assert granted == pytest.approx(min(burst, rate * idle), abs=1.0)
    assert granted <= burst


@given(st.floats(0.01, 1000), st.integers(1, 50))
def test_the_next_call_is_there_when_it_was_announced(rate: float, burst: int) -> None:
    emptied, _ = spend(bucket(rate, burst), burst, 100.0)
    soon = 100.0 + next_token_in(emptied, 100.0)
    _, granted = spend(emptied, 1, soon + 1e-6)
    assert granted == 1
    _, early = spend(emptied, 1, soon - 0.01 / rate)
    assert early == 0


def test_a_clock_that_stands_still_gives_nothing() -> None:
    emptied, _ = spend(bucket(burst=5), 5, 100.0)
    assert spend(emptied, 1, 100.0)[1] == 0
    assert spend(emptied, 1, 99.0)[1] == 0


# To whom.


def test_the_most_important_ask_goes_first_whatever_the_order_of_arrival() -> None:
    asks = [ask(priority.name, priority) for priority in reversed(Priority)]
    order = [asker for asker, _ in given_out(bucket(burst=6), asks, 100.0)]
    assert order == [priority.name for priority in Priority]


def test_of_equals_the_one_that_came_first_goes_first() -> None:
    asks = [ask("late", since=99.0), ask("early", since=98.0)]
    assert given_out(bucket(burst=1), asks, 100.0) == [("early", 1)]


@pytest.mark.parametrize(
    ("waited", "first"),
    [(0.0, "new"), (5 * AGEING - 1, "new"), (5 * AGEING + 1, "old")],
)
def test_waiting_lifts_an_ask_until_it_cannot_starve(waited: float, first: str) -> None:
    old = ask("old", Priority.REFRESH, since=1000.0 - waited)
    new = ask("new", Priority.NODE_INIT, since=1000.0)
    assert given_out(bucket(burst=1), [old, new], 1000.0) == [(first, 1)]


def test_an_ask_gets_what_there_is_and_the_next_one_the_rest() -> None:
    asks = [ask("a", Priority.NODE_INIT, count=3), ask("b", count=9), ask("c", Priority.REFRESH)]
    assert given_out(bucket(burst=5), asks, 100.0) == [("a", 3), ("b", 2)]


@given(
    st.integers(1, 50),
    st.lists(st.builds(ask, st.text("abc"), st.sampled_from(Priority), st.integers(1, 20))),
)
def test_everything_there_is_is_given_while_somebody_waits(burst: int, asks: list[Ask]) -> None:
    grants = list(share_out(bucket(burst=burst), asks, 100.0))
    assert sum(grant.count for grant in grants) == min(burst, sum(ask.count for ask in asks))
    assert all(grant == Grant(grant.ask, min(grant.count, grant.ask.count)) for grant in grants)


# Throttled.


def test_a_throttling_answer_halves_the_rate_and_empties_the_bucket() -> None:
    slower = throttled(bucket(10.0), 2.0, 100.0)
    assert (slower.rate, slower.tokens, slower.shut_until) == (5.0, 0.0, 102.0)
    assert given_out(slower, [ask("a")], 101.9) == []


def test_without_a_word_of_the_cloud_the_bucket_is_shut_for_a_second() -> None:
    assert throttled(bucket(), None, 100.0).shut_until == 101.0


@given(st.lists(st.tuples(st.floats(0, 0.9), st.none() | st.floats(1, 60)), min_size=1))
def test_answers_to_calls_under_way_together_halve_the_rate_once(
    answers: list[tuple[float, float | None]],
) -> None:
    slower = bucket(10.0)
    for after, seconds in answers:
        slower = throttled(slower, seconds, 100.0 + after)
    assert slower.rate == 5.0


def test_a_longer_word_of_the_cloud_keeps_the_bucket_shut_for_longer() -> None:
    slower = throttled(throttled(bucket(), 2.0, 100.0), 30.0, 101.0)
    assert slower.shut_until == 131.0
    assert throttled(slower, 1.0, 102.0).shut_until == 131.0


@given(st.lists(st.floats(0.1, 5), max_size=30))
def test_throttling_never_takes_the_last_share_of_the_rate(pauses: list[float]) -> None:
    now, slower = 100.0, bucket(10.0)
    for pause in pauses:
        now += pause
        slower = throttled(slower, 0.05, now)
        assert slower.rate >= 10.0 * FLOOR


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=60))
def test_a_slowed_rate_recovers_steadily_and_never_beyond_the_full(steps: list[float]) -> None:
    now, slower = 101.0, replace(throttled(bucket(10.0), 1.0, 100.0), rate=10.0 * FLOOR)
    for step in steps:
        now += step
        before, slower = slower.rate, refill(slower, now)
        assert before <= slower.rate <= 10.0
        if now - 101.0 >= RECOVERY:
            assert slower.rate == 10.0


def test_nothing_flows_in_while_the_bucket_is_shut() -> None:
    slower = throttled(bucket(10.0, burst=100), 5.0, 100.0)
    assert refill(slower, 104.0).tokens == 0.0
    reopened = refill(slower, 107.0)
    assert reopened.tokens == pytest.approx(2 * 5.0)


@given(st.floats(0.1, 60), st.floats(0.1, 100))
def test_the_next_call_after_throttling_waits_until_the_bucket_opens(
    seconds: float, rate: float
) -> None:
    slower = throttled(bucket(rate), seconds, 100.0)
    assert next_token_in(slower, 100.0) >= seconds
