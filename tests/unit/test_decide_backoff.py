"""How long to wait before another try."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.decide.backoff import Backoff

chances = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(
    ("failures", "expected"),
    [(-1, 0.5), (0, 0.5), (1, 0.5), (2, 1.0), (3, 2.0), (6, 16.0), (7, 20.0), (10**9, 20.0)],
)
def test_a_delay_doubles_with_each_failure_up_to_the_most(failures: int, expected: float) -> None:
    assert Backoff(0.5, 20.0, jitter=0.0).delay(failures, chance=0.7) == expected


@given(st.integers(1, 10**6), chances, chances)
def test_a_delay_is_positive_and_never_longer_than_the_most(
    failures: int, jitter: float, chance: float
) -> None:
    assert 0 < Backoff(0.2, 300.0, jitter).delay(failures, chance) <= 300.0


@given(st.integers(1, 100))
def test_jitter_spreads_a_herd(failures: int) -> None:
    backoff = Backoff(0.2, 300.0, jitter=0.5)
    early, late = backoff.delay(failures, 0.999), backoff.delay(failures, 0.0)
    assert early == pytest.approx(late / 2, rel=0.01)
