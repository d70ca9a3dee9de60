"""How often something may happen of each of many."""

from ccm.decide.allowance import Allowances


def test_it_may_happen_so_often_at_once_and_then_at_a_slow_rate() -> None:
    allowances = Allowances[str](3, 10.0, 100)
    assert [allowances.take("a", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 10.0]
    assert allowances.take("a", 4.0) == 6.0
    assert allowances.take("b", 4.0) == 0.0
    assert [allowances.take("a", 10.0) for _ in range(2)] == [0.0, 10.0]
    assert [allowances.take("a", 1000.0) for _ in range(4)] == [0.0, 0.0, 0.0, 10.0]


def test_of_too_many_those_are_forgotten_that_were_asked_about_longest_ago() -> None:
    allowances = Allowances[int](1, 10.0, 2)
    assert [allowances.take(key, 0.0) for key in (1, 2, 1, 3)] == [0.0, 0.0, 10.0, 0.0]
    assert allowances.take(1, 0.0) == 10.0
    assert allowances.take(2, 0.0) == 0.0
