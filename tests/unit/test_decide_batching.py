"""When a batch of reads leaves, by when objects come: each pace, and any arrivals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.decide.batching import (
    BatchTimings,
    GatheringBatch,
    LastBatch,
    begin,
    leave,
    seconds_to_wait,
)
from tests.support.properties import examples

TIMINGS = BatchTimings()
PAGE = 20
TICK = 1e-6  # more than the error of a float


@dataclass(frozen=True)
class Left:
    """A batch that left."""

    is_stream: bool
    at: float
    size: int
    waited: float  # its first object
    enough: float  # objects


def batches(
    arrivals: Sequence[float], page: int = PAGE, are_more_coming: bool = False
) -> list[Left]:
    """What leaves when objects come at these times."""
    last, made, first = LastBatch(), list[Left](), 0
    while first < len(arrivals):
        now = began = max(arrivals[first], last.left_at)
        batch = begin(last, now, TIMINGS)
        while True:
            came = [at for at in arrivals[first : first + page] if at <= now]
            joined_at = max(began, came[-1])
            if len(came) == page:
                break
            seconds = seconds_to_wait(batch, now, joined_at, are_more_coming, TIMINGS, len(came))
            if not seconds:
                break
            wanted = page if are_more_coming else int(min(page, batch.enough))
            filled_at = [at for at in arrivals[first + wanted - 1 : first + wanted] if at > now]
            now = min([now + seconds, *filled_at])
        last = leave(batch, now, len(came), len(came) == page, TIMINGS)
        made.append(Left(batch.is_stream, now, len(came), now - arrivals[first], batch.enough))
        first += len(came)
    return made


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        pytest.param([0.0], [(1, 0.0005)], id="alone"),
        pytest.param([0.0, 0.01], [(1, 0.0005), (1, 0.005)], id="alone-just-after-another"),
        pytest.param([0.0, 0.06], [(1, 0.0005), (1, 0.0005)], id="alone-again"),
        pytest.param([0.0, 0.0004, 0.0008], [(3, 0.0013)], id="in-the-same-moment"),
        pytest.param([0.0] * 45, [(20, 0.0), (20, 0.0), (5, 0.03)], id="pages-and-a-rest"),
        pytest.param([0.0, 0.0, 0.4], [(2, 0.0005), (1, 0.03)], id="after-several"),
        pytest.param([0.0, 0.0, 0.6], [(2, 0.0005), (1, 0.0005)], id="long-after-several"),
        pytest.param(
            [0.0, 0.0, 0.1, 0.2, 0.25, 0.31, 0.4],
            [(2, 0.0005), (1, 0.03), (3, 0.17), (1, 0.12)],
            id="left-too-soon",
        ),
        pytest.param(
            [0.0, 0.0, 0.1, 0.2, 0.3, 0.7, 1.8],
            [(2, 0.0005), (1, 0.03), (1, 0.06), (1, 0.12), (1, 0.22), (1, 0.0005)],
            id="until-none-comes",
        ),
    ],
)
def test_a_batch_leaves(arrivals: list[float], expected: list[tuple[int, float]]) -> None:
    """With so many objects, and after its first one waited so long."""
    assert [(left.size, round(left.waited, 4)) for left in batches(arrivals)] == expected


LONE = GatheringBatch(False, 0.0, TIMINGS.lone_window, 0.5)
STREAM = GatheringBatch(True, 0.0, TIMINGS.join_window, 0.5)


@pytest.mark.parametrize(
    ("window", "now", "expected"),
    [
        (0.0, 0.05, GatheringBatch(False, 0.05, TIMINGS.lone_window, 0.55)),
        (0.0, 0.25, GatheringBatch(False, 0.25, TIMINGS.first_window, 0.75)),
        (0.03, 0.25, GatheringBatch(True, 0.25, 0.03, 0.5)),
        (0.03, 0.5, GatheringBatch(False, 0.5, TIMINGS.first_window, 1.0)),
        (0.12, 0.25, GatheringBatch(True, 0.25, 0.12, 0.5)),
    ],
)
def test_a_batch_begins_by_the_last_one(
    window: float, now: float, expected: GatheringBatch
) -> None:
    assert begin(LastBatch(0.0, window), now, TIMINGS) == expected
    enough = 8 if expected.is_stream else math.inf
    assert begin(LastBatch(0.0, window, 8), now, TIMINGS) == replace(expected, enough=enough)


@pytest.mark.parametrize(
    ("batch", "now", "seconds"),
    [
        (LONE, 9.5, TIMINGS.lone_window),
        (LONE, TIMINGS.longest_wait, 0.0),
        (STREAM, 0.125, 0.375),
        (STREAM, 0.5, TIMINGS.interval),
        (STREAM, 9.5, TIMINGS.interval),
    ],
)
def test_a_batch_that_others_are_about_to_join_waits(
    batch: GatheringBatch, now: float, seconds: float
) -> None:
    assert seconds_to_wait(batch, now, 0.0, True, TIMINGS) == seconds


@pytest.mark.parametrize(("now", "window"), [(0.25, 0.06), (0.5, 0.03)])
def test_the_window_doubles_when_a_batch_left_too_soon(now: float, window: float) -> None:
    assert leave(STREAM, now, 1, False, TIMINGS) == LastBatch(now, window, 2)


def test_a_window_is_no_longer_than_the_interval() -> None:
    batch = replace(STREAM, window=0.3)
    assert leave(batch, 0.25, 1, False, TIMINGS).window == TIMINGS.interval


@pytest.mark.parametrize(("size", "enough"), [(8, 16), (9, 18)])
def test_a_batch_that_was_large_enough_did_not_leave_too_soon(size: int, enough: int) -> None:
    batch = replace(STREAM, enough=8)
    assert leave(batch, 0.25, size, False, TIMINGS) == LastBatch(0.25, 0.03, enough)


def test_a_full_batch_did_not_leave_too_soon() -> None:
    assert leave(STREAM, 0.25, PAGE, True, TIMINGS) == LastBatch(0.25, 0.03, 2 * PAGE)


def test_a_smaller_batch_makes_the_next_one_no_smaller() -> None:
    batch = replace(STREAM, enough=8)
    assert leave(batch, 0.25, 3, False, TIMINGS) == LastBatch(0.25, 0.06, 8)


@pytest.mark.parametrize(("size", "window"), [(1, 0.0), (2, 0.03)])
def test_several_are_a_stream(size: int, window: float) -> None:
    assert leave(LONE, 0.1, size, False, TIMINGS).window == window


@pytest.mark.parametrize(
    ("size", "are_more_coming", "leaves"), [(7, False, False), (8, False, True), (8, True, False)]
)
def test_a_batch_that_is_large_enough_leaves_unless_others_are_about_to_join(
    size: int, are_more_coming: bool, leaves: bool
) -> None:
    batch = replace(STREAM, enough=8)
    waits = seconds_to_wait(batch, 0.01, 0.01, are_more_coming, TIMINGS, size)
    assert (waits == 0.0) is leaves


def test_a_pause_in_a_burst_costs_the_last_no_more_than_twice_as_long() -> None:
    """100 Nodes at 250 a second, beside an API server that stops for 40 ms."""
    times = [0.004 * number + (0.04 if number > 60 else 0.0) for number in range(99)]
    made = batches([0.0, *times], page=100)
    assert made[-1].at - times[-1] <= 2 * TIMINGS.join_window + TICK
    assert len(made) <= 7


def test_a_burst_is_read_in_batches_that_double_while_it_comes() -> None:
    made = batches([0.0, 0.0, *(0.004 * number for number in range(1, 99))], page=100)
    assert [left.size for left in made] == [2, 4, 8, 16, 32, 38]


def test_objects_that_are_about_to_join_are_waited_for_but_not_for_ever() -> None:
    for left in batches([0.0, 0.0, 20.0], are_more_coming=True):
        assert TIMINGS.longest_wait <= left.waited <= TIMINGS.longest_wait + TIMINGS.interval


def test_objects_that_keep_coming_are_read_twice_a_second() -> None:
    made = batches([0.004 * number for number in range(1000)], page=1000)
    large = [left.size for left in made if left.size > 100]
    assert large == pytest.approx([125] * len(large), abs=3)
    assert sum(large) > 700


GAPS = st.lists(st.one_of(*(st.floats(0, most) for most in (0.0, 0.001, 0.05, 1.0))), max_size=150)


@given(GAPS)
@examples(400)
def test_whatever_comes_waits_and_costs_little(gaps: list[float]) -> None:
    arrivals = list(accumulate(gaps))
    made = batches(arrivals)
    assert sum(left.size for left in made) == len(arrivals)
    assert all(left.waited <= TIMINGS.interval + TICK for left in made)
    assert all(left.size <= PAGE for left in made)
    early = []
    for before, left in pairwise(made):
        passed = left.at - before.at
        if left.is_stream:
            assert passed <= TIMINGS.interval + TICK
            if left.size < min(PAGE, left.enough) and passed < TIMINGS.interval - TICK:
                early.append(left.at)
    # 0.03, 0.06, 0.12, 0.24, 0.48: each interval has the five doublings and no more.
    assert all(early[index + 5] - at > TIMINGS.interval for index, at in enumerate(early[:-5]))
    grown = [left for left in made if left.enough <= left.size < PAGE]
    for before, after in pairwise(grown):
        assert after.enough >= 2 * before.enough or after.at - before.at > TIMINGS.interval
