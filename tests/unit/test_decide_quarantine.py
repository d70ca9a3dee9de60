"""Who is suspected after a worker's death, and how few deaths it takes to find a culprit."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from ccm.decide.quarantine import (
    FORGOTTEN_AFTER,
    FREE,
    RETRY,
    Quarantine,
    Suspicion,
    after_death,
    after_survival,
)

NOW = 1000.0


def groups(known: Mapping[str, Suspicion]) -> dict[str, int]:
    return {key: suspicion.group for key, suspicion in known.items()}


@dataclass
class Controller:
    """Keys of which some kill; its workers execute them in an order that `chance` draws.

    Either in small parts, free keys beside suspects, or each group as a whole, free keys first.
    """

    count: int
    killer_count: int
    chance: random.Random
    is_in_parts: bool
    accidents: float = 0.0  # how likely an executing group ends its worker though none kills
    known: dict[str, Suspicion] = field(default_factory=dict)
    deaths: int = 0  # by killers

    def __post_init__(self) -> None:
        self.keys = [f"k{number}" for number in range(self.count)]
        self.killers = {*self.chance.sample(self.keys, self.killer_count)}

    @property
    def quarantined(self) -> set[str]:
        return {key for key in self.known if self.known[key].is_quarantined}

    def search(self) -> None:
        """Start one worker after another until every killer is quarantined."""
        for _ in range(500):
            self._live()
            if self.killers <= self.quarantined:
                return
        raise AssertionError(f"{self.killers - self.quarantined} are still at large")

    def _live(self) -> None:
        """One worker, until it dies or has executed all keys."""
        for executing in self._parts():
            is_killed = bool(self.killers & {*executing})
            if is_killed or self.chance.random() < self.accidents:
                self.deaths += is_killed
                self.known = after_death(self.known, executing, NOW)
                return
            for key in executing:
                self.known = after_survival(self.known, key)

    def _parts(self) -> list[list[str]]:
        """What executes at the same time, in order."""
        by_group: dict[int, list[str]] = {}
        for key in self.chance.sample(self.keys, self.count):
            suspicion = self.known.get(key, Suspicion(NOW))
            if suspicion.until <= NOW:
                by_group.setdefault(suspicion.group, []).append(key)
        if not self.is_in_parts:
            return [by_group.pop(FREE, []), *by_group.values()]
        free = self._cut(by_group.pop(FREE, []))
        parts = [part for group in by_group.values() for part in self._cut(group)]
        beside = [free.pop() if free and self.chance.random() < 0.5 else [] for _ in parts]
        mixed = free + [part + keys for part, keys in zip(parts, beside, strict=True)]
        return self.chance.sample(mixed, len(mixed))

    def _cut(self, keys: list[str]) -> list[list[str]]:
        size = self.chance.choice([1, 2, 10, 1000])
        return [keys[at : at + size] for at in range(0, len(keys), size)]


SEEDS = [(seed, is_in_parts) for seed in range(10) for is_in_parts in (False, True)]


@pytest.mark.parametrize("killer_count", [1, 2, 4])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 10, 30, 100])
def test_killers_are_found_in_two_logarithms_of_deaths_each(count: int, killer_count: int) -> None:
    most = max(2 * math.log2(count), 3)
    for seed, is_in_parts in SEEDS:
        controller = Controller(count, min(killer_count, count), random.Random(seed), is_in_parts)
        controller.search()
        assert controller.deaths <= controller.killer_count * most
        if killer_count == 1:
            assert controller.quarantined == controller.killers


@pytest.mark.parametrize(("count", "killer_count"), [(1, 1), (10, 4), (30, 3), (60, 1)])
def test_accidents_in_between_hide_no_killer_and_keep_no_one_in_quarantine(
    count: int, killer_count: int
) -> None:
    most = max(2 * math.log2(count), 3)
    for seed, is_in_parts in SEEDS:
        chance = random.Random(seed)
        controller = Controller(count, killer_count, chance, is_in_parts, accidents=0.1)
        controller.search()
        assert controller.deaths <= killer_count * most
        for key in controller.quarantined - controller.killers:  # tried again, it survives
            controller.known = after_survival(controller.known, key)
        assert controller.quarantined == controller.killers


def test_whoever_was_in_the_other_half_is_no_part_of_the_next_split() -> None:
    """A second killer may be there: the search for it begins where it was interrupted."""
    known = after_death(after_death({}, "abcd", NOW), "abcd", NOW)
    assert groups(known) == {"a": 1, "b": 1, "c": 2, "d": 2}
    known = after_death(known, "abxy", NOW)
    assert groups(known) == {"a": 3, "b": 4, "c": 2, "d": 2, "x": FREE, "y": FREE}
    known = after_death(known, "cdxy", NOW)
    assert {key: groups(known)[key] for key in "abcd"} == {"a": 3, "b": 4, "c": 5, "d": 6}


def test_one_death_makes_no_one_wait() -> None:
    known = after_death({}, ["a", "b"], NOW)
    assert groups(known) == {"a": FREE, "b": FREE}
    assert not any(suspicion.is_quarantined for suspicion in known.values())


def test_deaths_of_different_keys_are_accidents() -> None:
    known = after_death(after_death({}, ["a", "b"], NOW), ["c"], NOW)
    assert set(groups(known).values()) == {FREE}


def test_two_workers_that_die_in_turn_hide_no_killer() -> None:
    known: dict[str, Suspicion] = {}
    for executing in (["a", "x"], ["b", "y"], ["a", "z"], ["b", "u"]):
        known = after_death(known, executing, NOW)
    assert {key for key, group in groups(known).items() if group != FREE} == {"a", "b"}


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
    assert set(groups(later).values()) == {FREE}


def test_a_key_is_quarantined_once_no_other_one_can_be_the_culprit() -> None:
    known: dict[str, Suspicion] = {}
    for executing, deaths in (("a", 0), ("ax", 0), ("ay", 1), ("ayz", 2)):
        known = after_death(known, executing, NOW)
        assert known["a"].deaths == deaths


def test_each_controller_has_a_quarantine_of_its_own() -> None:
    quarantine, until = Quarantine(), NOW + 1.0 + RETRY.first
    assert quarantine.suspicions("node") == {}
    assert quarantine.record_death("node", ["a"], NOW) == {}
    assert quarantine.suspicions("node") == {"a": Suspicion(NOW)}
    assert quarantine.record_death("node", ["a"], NOW + 1.0) == {"a": Suspicion(until, 1, 1)}
    for controller in ("node", "service"):
        assert quarantine.record_death(controller, ["b"], NOW + 2.0) == {}
    assert quarantine.quarantined("node") == {"a": until}
    assert quarantine.status(NOW + 2.06) == {"node": {"a": 8.9}}
    quarantine.record_survival("node", "a")
    assert (quarantine.status(NOW), [*quarantine.suspicions("node")]) == ({}, ["b"])
