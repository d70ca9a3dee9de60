"""The life of a worker: every event in every state, and how deaths delay the next start."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.decide.children import (
    STEADY_TIME,
    TABLE,
    Life,
    WorkerEvent,
    WorkerState,
    next_life,
    restart_delay,
    why_renew,
)
from ccm.model.status import WorkerReport

ENDS = (WorkerEvent.DIED, WorkerEvent.REFUSED, WorkerEvent.ENDED)
EVERY_PAIR = [
    pytest.param(state, event, id=f"{state}-{event}".replace(" ", "-"))
    for state in WorkerState
    for event in WorkerEvent
]


@pytest.mark.parametrize(("state", "event"), EVERY_PAIR)
def test_an_event_changes_the_state_as_the_table_says_and_in_no_other_way(
    state: WorkerState, event: WorkerEvent
) -> None:
    before = Life(state, since=10.0, deaths=2)
    after = next_life(before, event, 20.0)
    if (state, event) in TABLE:
        assert (after.state, after.since) == (TABLE[(state, event)], 20.0)
    else:
        assert after == before


@pytest.mark.parametrize(
    "state", [WorkerState.STARTING, WorkerState.SYNCING, WorkerState.STANDBY, WorkerState.RUNNING]
)
@pytest.mark.parametrize("event", ENDS[:2])
def test_no_living_worker_outlives_its_process(state: WorkerState, event: WorkerEvent) -> None:
    assert next_life(Life(state), event, 1.0).state in (WorkerState.BACKOFF, WorkerState.FAILED)


@pytest.mark.parametrize(
    ("report", "limit", "why"),
    [
        ({}, 0, ""),
        ({}, 1, ""),
        ({"rss_bytes": 2 << 20}, 1 << 20, "2 MiB of memory, more than 1"),
        ({"rss_bytes": 512 << 20}, 0, ""),
        ({"rss_bytes": 513 << 20}, 0, "513 MiB of memory, more than 512"),
        ({"rss_bytes": 513 << 20, "objects": 32}, 0, ""),
        ({"rss_bytes": 513 << 20, "objects": 31}, 0, "513 MiB of memory, more than 512"),
        ({"threads": 500}, 0, ""),
        ({"threads": 501}, 0, "501 threads, more than 500"),
        ({"open_files": 768, "open_files_limit": 1024}, 0, ""),
        ({"open_files": 769, "open_files_limit": 1024}, 0, "769 open files of 1024"),
    ],
)
def test_what_a_worker_cannot_need_is_a_leak(report: WorkerReport, limit: int, why: str) -> None:
    assert why_renew(report, limit) == why


@given(st.lists(st.sampled_from(WorkerEvent), max_size=30))
def test_only_a_worker_that_has_everything_may_act(events: list[WorkerEvent]) -> None:
    life, has_synced = Life(), False
    for event in events:
        before, life = life.state, next_life(life, event, 1.0)
        if life.state is WorkerState.STARTING:
            has_synced = False
        if before is WorkerState.SYNCING and event is WorkerEvent.SYNCED:
            has_synced = True
        assert life.state is not WorkerState.RUNNING or has_synced


def died(life: Life, ran_for: float) -> Life:
    """The life after one more start that reached `running` and ended after `ran_for` seconds."""
    now = life.since
    for event in (
        WorkerEvent.STARTED,
        WorkerEvent.CONNECTED,
        WorkerEvent.SYNCED,
        WorkerEvent.STARTED_LEADING,
    ):
        life = next_life(life, event, now)
    return next_life(life, WorkerEvent.DIED, now + ran_for)


@given(st.integers(1, 200))
def test_deaths_in_a_row_are_counted(times: int) -> None:
    life = Life()
    for _ in range(times):
        life = died(life, ran_for=STEADY_TIME - 0.1)
    assert (life.state, life.deaths) == (WorkerState.BACKOFF, times)


@given(st.integers(0, 200))
def test_a_steady_run_forgets_earlier_deaths(times: int) -> None:
    assert died(Life(WorkerState.BACKOFF, deaths=times), ran_for=STEADY_TIME).deaths == 1


def test_standing_by_is_a_steady_run_too() -> None:
    life = Life(WorkerState.STANDBY, since=0.0, deaths=5)
    assert next_life(life, WorkerEvent.DIED, STEADY_TIME).deaths == 1


@pytest.mark.parametrize("state", [WorkerState.FAILED, WorkerState.SKIPPED])
def test_a_worker_that_is_started_again_by_command_is_starting(state: WorkerState) -> None:
    assert next_life(Life(state), WorkerEvent.STARTED, 1.0).state is WorkerState.STARTING


def test_a_worker_that_dies_while_it_drains_has_not_failed() -> None:
    life = next_life(Life(WorkerState.DRAINING, deaths=1), WorkerEvent.DIED, 1.0)
    assert (life.state, life.deaths) == (WorkerState.STOPPED, 1)


@pytest.mark.parametrize(
    ("deaths", "expected"),
    [(0, 0.0), (1, 0.0), (2, 0.1), (3, 0.2), (4, 0.4), (8, 6.4), (11, 51.2), (12, 60), (9999, 60)],
)
def test_the_delay_of_a_start_doubles_up_to_a_minute(deaths: int, expected: float) -> None:
    assert restart_delay(Life(WorkerState.BACKOFF, deaths=deaths), chance=0.0) == pytest.approx(
        expected
    )


@given(st.integers(2, 10_000), st.floats(0, 1, exclude_max=True))
def test_jitter_shortens_a_delay_by_a_fifth_at_the_most(deaths: int, chance: float) -> None:
    life = Life(WorkerState.BACKOFF, deaths=deaths)
    full = restart_delay(life, 0.0)
    assert full * 0.8 <= restart_delay(life, chance) <= full
