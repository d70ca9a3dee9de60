"""When a leader offers its Lease: after how long, how often, and for which workers."""

from collections.abc import Iterable
from itertools import pairwise

import pytest

from ccm.decide.children import Life, WorkerState, is_up
from ccm.decide.offer import (
    MAX_INTERVAL,
    OfferSchedule,
    after_offer,
    observe_down,
    workers_due,
)

LIMIT = 300.0


def offers(down: Iterable[tuple[float, str]], limit: float = LIMIT) -> list[tuple[float, str]]:
    """When an offer was made, and for whom; each time all workers that are down are told."""
    schedule, made = OfferSchedule(limit, limit), list[tuple[float, str]]()
    for now, names in down:
        schedule = observe_down(schedule, names.split(), now)
        if due := workers_due(schedule, now):
            schedule = after_offer(schedule, now)
            made.append((now, " ".join(due)))
    return made


def down(names: str, start: int, end: int) -> list[tuple[float, str]]:
    """These workers are down from `start` to `end`, seen every second."""
    return [(float(now), names) for now in range(start, end)]


def test_a_worker_that_is_down_for_the_limit_causes_an_offer() -> None:
    assert offers(down("node-0", 50, 1000))[0] == (50 + LIMIT, "node-0")


def test_offers_come_ever_more_seldom_and_at_least_once_an_hour() -> None:
    times = [at for at, _ in offers(down("node-0", 0, 20_000))]
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps == [600, 1200, 2400, *[MAX_INTERVAL] * 4]


def test_once_all_workers_are_up_the_first_limit_counts_again() -> None:
    history = [*down("node-0", 0, 1000), *down("", 1000, 1001), *down("node-0", 1001, 1900)]
    assert [at for at, _ in offers(history)] == [300, 900, 1301]


def test_a_worker_that_is_up_now_and_then_causes_none() -> None:
    history = [*down("node-0", 0, 299), *down("", 299, 300), *down("node-0", 300, 599)]
    assert offers(history) == []


def test_workers_that_are_down_in_turns_cause_none() -> None:
    assert offers([*down("node-0", 0, 250), *down("service", 250, 500)]) == []


def test_another_worker_that_fails_does_not_delay_the_offer() -> None:
    assert offers([*down("node-0", 0, 200), *down("node-0 route", 200, 400)]) == [(300, "node-0")]


def test_a_limit_of_an_hour_and_more_is_kept() -> None:
    assert [at for at, _ in offers(down("route", 0, 15_000), 5000.0)] == [5000, 10_000]


def test_a_limit_of_zero_never_offers() -> None:
    assert offers(down("node-0", 0, 5000), 0.0) == []


@pytest.mark.parametrize(
    ("life", "expected"),
    [
        (Life(WorkerState.BACKOFF, 0.0, 3), False),
        (Life(WorkerState.STARTING, 0.0), False),
        (Life(WorkerState.RUNNING, 99.0, 0), True),
        (Life(WorkerState.RUNNING, 99.0, 2), False),  # it dies at once all the time
        (Life(WorkerState.RUNNING, 90.0, 2), True),
        (Life(WorkerState.STANDBY, 90.0, 2), True),
        (Life(WorkerState.SKIPPED, 99.0), True),
    ],
)
def test_a_worker_is_up_when_it_runs_and_not_just_for_a_moment(life: Life, expected: bool) -> None:
    assert is_up(life, 100.0, steady=10.0) is expected
