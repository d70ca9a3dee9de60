"""Who is suspected after a worker's death, and how few deaths it takes to find a culprit."""

import math
import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.decide.quarantine import (
    FORGOTTEN_AFTER,
    RETRY,
    Suspected,
    Suspicion,
    after_death,
    after_survival,
    suspects_at_once,
)

NOW = 1000.0
RANDOMS = st.integers(0, 2**32).map(random.Random)  # drawn as a whole, and not call by call


def grades(known: Mapping[str, Suspicion]) -> dict[str, Suspected]:
    return {key: suspicion.grade for key, suspicion in known.items()}


def one_life(
    known: dict[str, Suspicion], keys: list[str], killers: set[str], chance: random.Random
) -> tuple[dict[str, Suspicion], bool]:
    """What is known after a worker executed all `keys` in some order, and whether it died.

    Suspects come last and so many at a time as may; a killer ends it while others execute.
    """
    free = [key for key in keys if known.get(key, Suspicion(Suspected.ONCE, 0)).grade == 1]
    suspects = [key for key in keys if key in known and known[key].grade is Suspected.REPEATEDLY]
    chance.shuffle(free)
    chance.shuffle(suspects)
    width, at_once = max(len(free), 1), suspects_at_once(known)
    groups = [free] + [suspects[at : at + at_once] for at in range(0, len(suspects), at_once)]
    for group in groups:
        if killers & {*group}:
            beside = chance.sample(free, chance.randrange(width)) if group is not free else []
            return after_death(known, group + [k for k in beside if k not in killers], NOW), True
        for key in known.keys() & {*group}:
            known = after_survival(known, key)
    return known, False


@given(st.integers(1, 300), RANDOMS)
def test_a_killer_is_found_in_two_logarithms_of_deaths(count: int, chance: random.Random) -> None:
    keys = [f"k{number}" for number in range(count)]
    killer = chance.choice(keys)
    known: dict[str, Suspicion] = {}
    deaths = 0
    while not (killer in known and known[killer].is_quarantined):
        known, died = one_life(known, keys, {killer}, chance)
        deaths += died
        assert died
    assert deaths <= max(2 * math.log2(count), 2 + (count > 1))
    assert [key for key in known if known[key].is_quarantined] == [killer]


@given(st.integers(2, 60), st.integers(1, 4), st.randoms(use_true_random=False))
def test_several_killers_are_found_and_nobody_else_stays_in_quarantine(
    count: int, many: int, chance: random.Random
) -> None:
    """Also with workers that die by accident in between."""
    keys = [f"k{number}" for number in range(count)]
    killers = set(chance.sample(keys, min(many, count)))
    known: dict[str, Suspicion] = {}
    for _ in range(40 * many):
        known, died = one_life(known, keys, killers, chance)
        if not died:
            break
        if chance.random() < 0.1:
            known = after_death(known, chance.sample(keys, chance.randrange(count)), NOW)
    assert not died
    found = {key for key in known if known[key].is_quarantined}
    assert killers <= found
    for key in found - killers:  # by an accident; it is tried again, and survives
        known = after_survival(known, key)
    assert {key for key in known if known[key].is_quarantined} == killers


def test_one_death_makes_nobody_wait() -> None:
    known = after_death({}, ["a", "b"], NOW)
    assert grades(known) == {"a": Suspected.ONCE, "b": Suspected.ONCE}


def test_deaths_of_different_keys_are_accidents() -> None:
    known = after_death(after_death({}, ["a", "b"], NOW), ["c"], NOW)
    assert set(grades(known).values()) == {Suspected.ONCE}


def test_two_workers_that_die_in_turn_hide_no_killer() -> None:
    known: dict[str, Suspicion] = {}
    for executing in (["a", "x"], ["b", "y"], ["a", "z"], ["b", "u"]):
        known = after_death(known, executing, NOW)
    assert {key for key, grade in grades(known).items() if grade is Suspected.REPEATEDLY} == {
        "a",
        "b",
    }


@pytest.mark.parametrize("times", [1, 2, 3, 12])
def test_a_key_that_kills_again_is_left_alone_for_longer(times: int) -> None:
    known = after_death({}, ["a"], NOW)
    for _ in range(times):
        known = after_death(known, ["a"], NOW)
    assert known["a"].until == NOW + RETRY.delay(times, 0.0)


def test_a_key_that_lived_is_forgotten_and_one_of_long_ago_too() -> None:
    known = after_survival(after_death({}, ["a", "b"], NOW), "a")
    assert list(known) == ["b"]
    later = after_death(known, ["a", "b"], NOW + FORGOTTEN_AFTER)
    assert set(grades(later).values()) == {Suspected.ONCE}
