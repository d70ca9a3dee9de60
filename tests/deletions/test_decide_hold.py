"""How a hold on all deletions begins and ends, as a pure decision."""

from dataclasses import replace

import pytest

from ccm.decide.deletion import CALM_ROUNDS, Hold, Situation, is_over, weigh

from .site import POLICY

NOW = 1000.0
CALM = Situation(
    total=100, vanished=30, permits=(), is_frozen=False, is_held=False, all_heard_since=NOW
)
MASS = replace(CALM, vanished=31)


def after(rounds: str, hold: Hold | None = None, step: float = 5.0) -> tuple[Hold | None, float]:
    """The hold after rounds such as "Aab": a worker each, a capital when it is a mass."""
    now = NOW
    for index, sign in enumerate(rounds):
        now = NOW + index * step
        hold = weigh(hold, MASS if sign.isupper() else CALM, sign.lower(), POLICY, now)
    return hold, now


def is_open(rounds: str, workers: str, step: float = 5.0) -> bool:
    hold, now = after(rounds, step=step)
    return hold is None or is_over(hold, workers, POLICY, now)


@pytest.mark.parametrize(
    ("rounds", "workers", "step", "expected"),
    [
        pytest.param("aaa", "a", 5.0, True, id="it-was-never-a-mass"),
        pytest.param("A", "a", 5.0, False, id="a-mass"),
        pytest.param("Aaa", "a", 5.0, False, id="two-calm-rounds"),
        pytest.param("Aaaa", "a", 5.0, True, id="three-calm-rounds"),
        pytest.param("AaaAaa", "a", 5.0, False, id="a-mass-again"),
        pytest.param("Aaaabb", "ab", 5.0, False, id="one-worker-is-not-calm-for-long-enough"),
        pytest.param("Aababab", "ab", 5.0, True, id="both-workers"),
        pytest.param("Aaaaaaa", "ab", 5.0, False, id="one-worker-says-nothing"),
        pytest.param("Aaaaaaaa", "a", 0.1, False, id="a-quick-burst-of-rounds"),
        pytest.param("Aaa", "a", 100.0, False, id="slow-rounds-count-too"),
    ],
)
def test_a_hold_ends_after_calm_rounds_of_every_worker(
    rounds: str, workers: str, step: float, expected: bool
) -> None:
    assert is_open(rounds, workers, step) is expected


def test_a_hold_tells_of_its_beginning_and_of_the_latest_mass() -> None:
    hold, _ = after("AaA")
    assert hold == Hold(NOW, 31, 100)
    assert CALM_ROUNDS == 3  # docs/deletion.md says three
