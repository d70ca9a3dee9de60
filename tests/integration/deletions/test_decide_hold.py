"""How a hold on all deletions begins and ends, as a pure decision."""

from dataclasses import replace

import pytest

from ccm.decide.deletion import (
    HEALTHY_PASSES,
    UNREADY_AFTER,
    ClusterState,
    Hold,
    has_recovered,
    update_hold,
)

from .cluster import POLICY

NOW = 1000.0
HEALTHY = ClusterState(
    total=100, vanished=30, permits=(), is_frozen=False, is_held=False, all_heard_since=NOW
)
MASS = replace(HEALTHY, vanished=31)


def after(passes: str, hold: Hold | None = None, step: float = 5.0) -> tuple[Hold | None, float]:
    """The hold after passes such as "Aab": a worker each, a capital when it is a mass."""
    now = NOW
    for index, sign in enumerate(passes):
        now = NOW + index * step
        hold = update_hold(hold, MASS if sign.isupper() else HEALTHY, sign.lower(), POLICY, now)
    return hold, now


def is_open(passes: str, workers: str, step: float = 5.0) -> bool:
    hold, now = after(passes, step=step)
    return hold is None or has_recovered(hold, workers, POLICY, now)


@pytest.mark.parametrize(
    ("passes", "workers", "step", "expected"),
    [
        pytest.param("aaa", "a", 5.0, True, id="it-was-never-a-mass"),
        pytest.param("A", "a", 5.0, False, id="a-mass"),
        pytest.param("Aaa", "a", 5.0, False, id="two-healthy-passes"),
        pytest.param("Aaaa", "a", 5.0, True, id="three-healthy-passes"),
        pytest.param("AaaAaa", "a", 5.0, False, id="a-mass-again"),
        pytest.param("Aaaabb", "ab", 5.0, False, id="one-worker-is-not-healthy-for-long-enough"),
        pytest.param("Aababab", "ab", 5.0, True, id="both-workers"),
        pytest.param("Aaaaaaa", "ab", 5.0, False, id="one-worker-says-nothing"),
        pytest.param("Aaaaaaaa", "a", 0.1, False, id="a-quick-burst-of-passes"),
        pytest.param("Aaaa", "a", 2.6, False, id="passes-that-are-less-than-a-period-apart"),
        pytest.param("Aaa", "a", 100.0, False, id="slow-passes-count-too"),
    ],
)
def test_a_hold_ends_after_healthy_passes_of_every_worker(
    passes: str, workers: str, step: float, expected: bool
) -> None:
    assert is_open(passes, workers, step) is expected


def test_a_hold_tells_of_its_beginning_and_of_the_latest_mass() -> None:
    hold, _ = after("AaA")
    assert hold == Hold(NOW, 31, 100)
    assert HEALTHY_PASSES == 3  # docs/deletion.md says three


@pytest.mark.parametrize(("second", "ready"), [(UNREADY_AFTER, 2), (UNREADY_AFTER - 0.1, None)])
def test_a_hold_begins_once_two_nodes_stay_ready_that_the_cloud_calls_gone(
    second: float, ready: int | None
) -> None:
    gone = replace(HEALTHY, ready_gone=(NOW - UNREADY_AFTER - 1.0, NOW - second))
    hold = update_hold(None, gone, "a", POLICY, NOW)
    assert hold == (None if ready is None else Hold(NOW, 30, 100, ready))
