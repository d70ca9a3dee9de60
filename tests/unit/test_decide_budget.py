"""The shared cloud budget: how much is given, to whom, and what a throttling answer does."""

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.decide.budget import (
    GRANT_WAIT,
    OWNERS_KEPT,
    SHARE,
    Allowances,
    FairQueue,
    PendingRequest,
    Priority,
    whole_tokens,
)
from ccm.decide.rate_law import (
    BURST_RECOVERY,
    LOWEST_SHARE,
    Bucket,
    next_token_in,
    refill,
    remaining,
    spend,
    throttled,
)

DELETE, ENSURE = Priority.LB_DELETE, Priority.LB_ENSURE


def request(
    worker: str, priority: Priority = Priority.ROUTE, since: float = 100.0
) -> PendingRequest:
    return PendingRequest(worker, 1, "read", priority, since)


def bucket(per_second: float = 10.0, burst: int = 5, now: float = 100.0) -> Bucket:
    return Bucket.new(per_second, burst, now)


def granted_to(
    bucket: Bucket, pending: list[PendingRequest], now: float, fair_queue: FairQueue | None = None
) -> list[str]:
    return [request.worker for request in granted(bucket, pending, now, fair_queue or FairQueue())]


def granted(
    bucket: Bucket, pending: list[PendingRequest], now: float, fair_queue: FairQueue
) -> list[PendingRequest]:
    """What is granted at once, in order."""
    waiting, found = list(pending), list[PendingRequest]()
    for _ in range(min(whole_tokens(bucket, now), len(pending))):
        found.append(fair_queue.next_request(waiting))
        fair_queue.grant(found[-1], waiting, now)
        waiting.remove(found[-1])
    return found


# How much.


def granting(bucket: Bucket, pending: int, now: float) -> tuple[Bucket, int]:
    """What is left after so many pending, and how many of them were granted."""
    bucket = refill(bucket, now)
    granted = len(granted_to(bucket, [request("a")] * pending, now))
    return spend(bucket, granted), granted


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
    now, shared = 100.0, bucket(rate, burst)
    granted: list[tuple[float, int]] = []
    for passed, what in history:
        now += passed
        if isinstance(what, tuple):
            shared = throttled(shared, what[1], now, now)
            continue
        shared, count = granting(shared, what, now)
        granted.append((now, count))
    for first, (begin, _) in enumerate(granted):
        total = 0
        for end, count in granted[first:]:
            total += count
            assert total <= burst + rate * (end - begin) + 1e-6


@given(st.floats(0.1, 100), st.integers(1, 50), st.floats(0, 1000))
def test_a_bucket_fills_to_its_burst_and_no_further(rate: float, burst: int, idle: float) -> None:
    emptied, _ = granting(bucket(rate, burst), burst, 100.0)
    _, granted = granting(emptied, burst * 2, 100.0 + idle)
    assert granted == pytest.approx(min(burst, rate * idle), abs=1.0)
    assert granted <= burst


@given(st.floats(0.01, 1000), st.integers(1, 50))
def test_the_next_call_is_there_when_it_was_announced(rate: float, burst: int) -> None:
    emptied, _ = granting(bucket(rate, burst), burst, 100.0)
    soon = 100.0 + next_token_in(emptied, 100.0)
    _, granted = granting(emptied, 1, soon + 1e-6)
    assert granted == 1
    _, early = granting(emptied, 1, soon - 0.01 / rate)
    assert early == 0


# To whom.


def test_the_most_important_ask_goes_first_whatever_the_order_of_arrival() -> None:
    pending = [request(priority.name, priority) for priority in reversed(Priority)]
    order = granted_to(bucket(burst=6), pending, 100.0)
    assert order == [priority.name for priority in Priority]


def test_of_equals_the_one_that_came_first_goes_first() -> None:
    pending = [request("late", since=99.0), request("early", since=98.0)]
    assert granted_to(bucket(burst=1), pending, 100.0) == ["early"]


@pytest.mark.parametrize("key", ["worker", "owner"])
def test_workers_and_owners_of_a_priority_take_turns(key: str) -> None:
    many, few = (
        replace(request(name if key == "worker" else "a", since=since), owner=name)
        for name, since in (("many", 100.0), ("few", 100.5))
    )
    fair_queue, order = FairQueue(), list[str]()
    waiting = [many] * 20 + [few] * 3
    for second in range(8):
        (one,) = granted(bucket(burst=1), waiting, 101.0 + second, fair_queue)
        waiting.remove(one)
        order.append(getattr(one, key))
    assert order == ["many", "few"] * 3 + ["many"] * 2


def test_deletions_of_one_namespace_hold_up_no_creation_of_another() -> None:
    """A tenant lets load balancers come and go without end."""
    many = [replace(request("a", each), owner="many") for each in (DELETE, ENSURE)]
    few = replace(request("a", ENSURE, since=100.5), owner="few")
    refresh = [request("route", Priority.REFRESH, since=100.5)] * 50
    fair_queue, waiting, order = FairQueue(), many * 50 + [few] * 9 + refresh, list[str]()
    for second in range(20):
        (one,) = granted(bucket(burst=1), waiting, 101.0 + second, fair_queue)
        waiting.remove(one)
        order.append(f"{one.owner} {one.priority.name}")
    assert order[:8] == ["many LB_DELETE", "few LB_ENSURE"] * 4
    assert order.count("few LB_ENSURE") == 9
    assert order.count(" REFRESH") == 2, "the share of those who come later stays"


@pytest.mark.parametrize("priority", [Priority.ROUTE, Priority.VOLUME])
def test_load_balancers_of_one_namespace_hold_up_no_route_and_no_volume(priority: Priority) -> None:
    """What the cluster wants of these takes turns with the namespaces, as one more of them."""
    hostile = [replace(request("a", ENSURE), owner="hostile")] * 100
    shared = [request("a", ENSURE)] * 100
    refresh = [request("a", Priority.REFRESH)] * 100
    waiting = [*hostile, *shared, *refresh, *[request("b", priority)] * 20]
    order = [each.priority for each in granted(bucket(burst=70), waiting, 101.0, FairQueue())]
    assert order.count(priority) == 20
    assert order.count(Priority.REFRESH) == 70 // SHARE


def test_routes_that_take_turns_with_namespaces_leave_comparisons_their_share() -> None:
    ensure = request("a", ENSURE)
    waiting = [replace(ensure, owner="hostile"), request("b"), request("c", Priority.REFRESH)] * 100
    order = Counter(granted_to(bucket(burst=100), waiting, 101.0))
    assert order["c"] == 100 // SHARE
    assert abs(order["a"] - order["b"]) <= 2 * order["c"]


def test_a_backlog_delays_a_more_important_ask_by_one_call_at_most() -> None:
    backlog = [request("route")] * 500 + [request("refresh", Priority.REFRESH)] * 500
    fair_queue = FairQueue()
    granted(bucket(burst=57), backlog, 100.0, fair_queue)
    late = [request("service", Priority.LB_ENSURE, since=200.0)] * 8
    order = granted_to(bucket(burst=9), [*backlog, *late], 200.0, fair_queue)
    assert order.count("service") == 8


def test_every_priority_has_its_share_under_endless_demand_of_all() -> None:
    pending = [request(each.name, each) for each in Priority for _ in range(500)]
    order = Counter(granted_to(bucket(burst=500), pending, 100.0))
    assert min(order[each.name] for each in Priority) >= 500 / SHARE / (len(Priority) - 1)
    assert order["NODE_INIT"] == 500 - 500 // SHARE


def test_the_share_is_for_those_who_wait_and_goes_to_whom_it_was_given_longest_ago() -> None:
    first, route = request("first", Priority.NODE_INIT), request("route")
    fair_queue = FairQueue()
    for one in (route, *[first] * SHARE):  # each of them alone
        fair_queue.grant(one, [one], 100.0)

    def order(burst: int, *pending: PendingRequest) -> list[str]:
        return granted_to(bucket(burst=burst), [*pending], 100.0, fair_queue)

    firsts = [first] * SHARE
    refresh = request("refresh", Priority.REFRESH)
    assert order(SHARE, *firsts, route, refresh) == ["first"] * (SHARE - 1) + ["refresh"]
    assert order(SHARE, *firsts, route) == ["first"] * (SHARE - 1) + ["route"]
    order(SHARE - 1, *firsts, route)
    assert order(1, first) == ["first"], "the other one was given up"


@given(
    st.integers(1, 50),
    st.lists(st.builds(request, st.text("abc"), st.sampled_from(Priority)), max_size=60),
)
def test_everything_there_is_is_given_while_someone_waits(
    burst: int, pending: list[PendingRequest]
) -> None:
    found = granted(bucket(burst=burst), pending, 100.0, FairQueue())
    assert len(found) == min(burst, len(pending))
    assert Counter(found) <= Counter(pending)


def test_owners_of_long_ago_are_forgotten() -> None:
    fair_queue = FairQueue()
    for number in range(3 * OWNERS_KEPT):
        one = replace(request("a"), owner=f"ns-{number}")
        fair_queue.grant(one, [one], 100.0 + number)
    assert len(fair_queue.owner_at) <= OWNERS_KEPT + 1


def test_owners_are_forgotten_of_whom_no_call_can_wait_and_no_others() -> None:
    fair_queue = FairQueue()
    for number in range(OWNERS_KEPT + 2):
        assert len(fair_queue.owner_at) == number
        one = replace(request("a"), owner=f"ns-{number}")
        fair_queue.grant(one, [one], 100.0 + number)
    assert {owner for _, _, owner in fair_queue.owner_at} == {
        f"ns-{OWNERS_KEPT + 1 - ago}" for ago in range(int(GRANT_WAIT))
    }


def test_a_circuit_is_closed_again_from_its_very_end_on() -> None:
    opened = replace(bucket(burst=5), open_until=100.0)
    assert [whole_tokens(opened, now) for now in (99.9, 100.0)] == [0, 5]
    assert whole_tokens(replace(opened, tokens=2.0 - 1e-12), 100.0) == 2
    assert whole_tokens(replace(opened, tokens=1.9), 100.0) == 1


# Throttled; what a bucket learns over time is in test_decide_rate_law.


@cache
def busy(rate: float = 10.0, burst: int = 5, seconds: float = 20.0) -> tuple[Bucket, float]:
    """A bucket that was asked for everything it had for a while, and the time now."""
    now, shared = 100.0, bucket(rate, burst)
    while now < 100.0 + seconds:
        shared, _ = granting(shared, burst + 1, now)
        now += next_token_in(shared, now)
    return refill(shared, now), now


def test_a_refusal_opens_the_circuit_for_as_long_as_the_cloud_says() -> None:
    slower = throttled(bucket(10.0), 2.0, 100.0, 100.0)
    assert (slower.tokens, slower.open_until) == (0.0, 102.0)
    assert granted_to(slower, [request("a")], 101.9) == []


def test_without_a_word_of_the_cloud_refusals_in_a_row_open_it_for_longer_each_time() -> None:
    slower, now, pauses = bucket(), 100.0, []
    for _ in range(8):
        slower = throttled(slower, None, now, now)
        pauses.append(slower.open_until - now)
        now = slower.open_until + 0.2
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


@pytest.mark.parametrize("seconds", [3600.0, 1e12])
def test_no_word_of_the_cloud_opens_it_for_longer_than_five_minutes(seconds: float) -> None:
    """One endpoint that is wrong, or what stands before it, stops all calls of its class."""
    for after in (
        throttled(bucket(), seconds, 100.0, 100.0),
        remaining(bucket(), 0, seconds, 100.0),
    ):
        assert after.open_until == 100.0 + 300.0
        assert next_token_in(after, 100.0) < 300.0 + 60.0


@pytest.mark.parametrize("calls", [1, 2, 11])
@pytest.mark.parametrize("seconds", [3600.0, 1e12])
def test_few_calls_that_are_left_let_one_ask_again_within_five_minutes(
    calls: int, seconds: float
) -> None:
    """The answer to the last one may not have come, and no other could correct the word."""
    spent, _ = granting(bucket(), 100, 100.0)
    after = remaining(spent, calls, seconds, 100.0)
    assert next_token_in(after, 100.0) <= 300.0
    assert refill(after, 400.0).tokens >= 1.0 - 1e-9


def test_a_refusal_in_steady_flow_lowers_the_rate_and_not_the_burst() -> None:
    flowing, now = busy()
    slower = throttled(flowing, 1.0, now, now)
    assert slower.rate < flowing.rate
    assert slower.burst == flowing.burst


def test_a_refusal_among_many_calls_at_once_lowers_the_burst_and_not_the_rate() -> None:
    at_once, _ = granting(bucket(10.0, burst=40), 40, 100.0)
    slower = at_once
    for number in range(20):
        slower = throttled(slower, 1.0, 100.1 + number / 1000, 100.0)
    assert slower.rate == 10.0
    assert 10.0 <= slower.burst < 20.0  # twenty got through


@given(st.lists(st.tuples(st.floats(0, 5), st.none() | st.floats(0, 60)), min_size=1))
def test_answers_to_calls_under_way_together_are_one_episode(
    answers: list[tuple[float, float | None]],
) -> None:
    slower, now = busy()
    granted = now
    for after, seconds in sorted(answers, key=lambda answer: answer[0]):
        slower = throttled(slower, seconds, now + after, granted)
    assert slower.episodes == 1
    assert slower.rate >= 10.0 / 4


def test_a_call_granted_after_the_circuit_closed_again_begins_another_episode() -> None:
    flowing, now = busy()
    slower = throttled(flowing, 1.0, now, now)
    slower = throttled(slower, 1.0, now + 1.5, now + 1.2)
    assert slower.episodes == 2


def test_a_longer_word_of_the_cloud_keeps_the_circuit_open_for_longer() -> None:
    slower = throttled(throttled(bucket(), 2.0, 100.0, 100.0), 30.0, 101.0, 100.0)
    assert slower.open_until == 131.0
    assert throttled(slower, 1.0, 102.0, 100.0).open_until == 131.0


@given(st.lists(st.floats(0.1, 5), max_size=30))
def test_throttling_never_takes_the_last_share_of_the_rate(pauses: list[float]) -> None:
    now, slower = 100.0, bucket(10.0)
    for pause in pauses:
        now += pause
        slower = throttled(slower, 0.05, now, now)
        assert slower.rate >= 10.0 * LOWEST_SHARE


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=60))
def test_a_slowed_rate_recovers_steadily_with_demand_and_never_beyond_the_full(
    steps: list[float],
) -> None:
    slower, now = busy()
    slower = throttled(slower, 0.0, now, now)
    for step in steps:
        now += step
        before = slower.rate
        slower = refill(replace(slower, tokens=-1000.0), now)
        assert before <= slower.rate <= 10.0


def test_without_demand_a_slowed_rate_stays_where_it_is() -> None:
    flowing, now = busy()
    slower = refill(throttled(flowing, 0.0, now, now), now + 10.0)
    assert refill(slower, now + 10_000.0).rate == slower.rate


def test_a_lowered_burst_is_back_within_the_hour() -> None:
    at_once, _ = granting(bucket(10.0, burst=40), 40, 100.0)
    slower = throttled(at_once, 1.0, 100.1, 100.0)
    assert refill(slower, 200.0).burst < 40.0
    assert refill(slower, 100.1 + BURST_RECOVERY).burst == 40.0


def test_nothing_flows_in_while_the_circuit_is_open() -> None:
    flowing, now = busy(burst=100)
    slower = throttled(flowing, 5.0, now, now)
    assert refill(slower, now + 4.0).tokens == 0.0
    assert refill(slower, now + 7.0).tokens == pytest.approx(2 * slower.rate)


def test_something_may_happen_so_often_at_once_and_then_at_a_slow_rate() -> None:
    allowances = Allowances[str](3, 10.0, 100)
    assert [allowances.take("a", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 10.0]
    assert allowances.take("a", 4.0) == 6.0
    assert allowances.take("b", 4.0) == 0.0
    assert [allowances.take("a", 10.0) for _ in range(2)] == [0.0, 10.0]
    assert [allowances.take("a", 1000.0) for _ in range(4)] == [0.0, 0.0, 0.0, 10.0]


def test_what_is_given_back_may_happen_again() -> None:
    allowances = Allowances[str](1, 10.0, 100)
    allowances.give_back("a")
    assert [allowances.take("a", 0.0) for _ in range(2)] == [0.0, 10.0]
    allowances.give_back("a")
    assert [allowances.take("a", 0.0) for _ in range(2)] == [0.0, 10.0]
    for _ in range(3):
        allowances.give_back("a")
    assert [allowances.take("a", 0.0) for _ in range(2)] == [0.0, 10.0], "never more than all"


def test_of_too_many_those_are_forgotten_that_were_asked_about_longest_ago() -> None:
    allowances = Allowances[int](1, 10.0, 2)
    assert [allowances.take(key, 0.0) for key in (1, 2, 1, 3)] == [0.0, 0.0, 10.0, 0.0]
    assert allowances.take(1, 0.0) == 10.0
    assert allowances.take(2, 0.0) == 0.0
