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


NODE = "node-0"


@pytest.mark.parametrize(
    ("history", "limit", "expected"),
    [
        pytest.param(down(NODE, 50, 350), LIMIT, [], id="not-for-long"),
        pytest.param(down(NODE, 50, 351), LIMIT, [350], id="for-the-limit"),
        pytest.param(
            [*down(NODE, 0, 1000), *down("", 1000, 1001), *down(NODE, 1001, 1900)],
            LIMIT,
            [300, 900, 1301],
            id="once-all-are-up-the-first-limit-counts-again",
        ),
        pytest.param(
            [*down(NODE, 0, 299), *down("", 299, 300), *down(NODE, 300, 599)],
            LIMIT,
            [],
            id="up-now-and-then",
        ),
        pytest.param([*down(NODE, 0, 250), *down("route", 250, 500)], LIMIT, [], id="in-turns"),
        pytest.param(down("route", 0, 15_000), 5000.0, [5000, 10_000], id="more-than-an-hour"),
        pytest.param(down(NODE, 0, 5000), 0.0, [], id="never"),
    ],
)
def test_a_lease_is_offered_once_a_worker_is_down_for_the_limit(
    history: list[tuple[float, str]], limit: float, expected: list[float]
) -> None:
    assert [at for at, _ in offers(history, limit)] == expected


def test_offers_come_ever_more_seldom_and_at_least_once_an_hour() -> None:
    times = [at for at, _ in offers(down(NODE, 0, 20_000))]
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps == [600, 1200, 2400, *[MAX_INTERVAL] * 4]


def test_another_worker_that_fails_does_not_delay_the_offer() -> None:
    assert offers([*down(NODE, 0, 200), *down("node-0 route", 200, 400)]) == [(300, NODE)]


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
