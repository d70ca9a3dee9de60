"""Which key's reconcile ends its worker: found by halving what was executing when workers died.

One death is an accident, and changes nothing. Keys that were executing at two deaths are suspects:
at most half of them execute at a time from then on, so each further death halves them, until one
is left. That one is quarantined: left alone for a while, then tried again, after longer and longer
pauses. All other keys go on meanwhile.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from ccm.decide.backoff import Backoff

RETRY = Backoff(first=10.0, most=3600.0, jitter=0.0)
FORGOTTEN_AFTER = 3600.0  # seconds; then a key has perhaps no object any more


class Suspected(IntEnum):
    """How much speaks against a key."""

    ONCE = 1  # it was executing at one death
    REPEATEDLY = 2  # ... at several, like others
    ALONE = 3  # no other key explains the deaths


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What speaks against a key, how often it was the culprit, and when it is tried again."""

    grade: Suspected
    until: float  # monotonic; of a key that is not quarantined the time of the death
    deaths: int = 0

    @property
    def is_quarantined(self) -> bool:
        return self.grade is Suspected.ALONE


Suspicions = Mapping[str, Suspicion]


def suspects_at_once(known: Suspicions) -> int:
    """How many suspects may execute at a time: when the worker dies again, it was one of them."""
    return max(sum(it.grade is Suspected.REPEATEDLY for it in known.values()) // 2, 1)


def after_death(known: Suspicions, executing: Iterable[str], now: float) -> dict[str, Suspicion]:
    """The suspicions once a worker died while these keys were `executing`.

    The death is held against those of them that were suspected most before. Everybody else keeps
    at most a first suspicion, so that a second culprit is found after the first.
    """
    keys = list(executing)
    recent = {k: s for k, s in known.items() if now < s.until + FORGOTTEN_AFTER}
    grade = max((recent[key].grade for key in keys if key in recent), default=None)
    if grade is None:
        return recent | {key: Suspicion(Suspected.ONCE, now) for key in keys}
    hit = [key for key in keys if key in recent and recent[key].grade is grade]
    is_proven = len(hit) == 1 and (grade > Suspected.ONCE or hit == keys)
    for key, old in recent.items():
        if old.grade is Suspected.REPEATEDLY and grade is Suspected.REPEATEDLY:
            recent[key] = Suspicion(Suspected.ONCE, now, old.deaths)
    for key in hit:
        deaths = recent[key].deaths + is_proven
        until = now + RETRY.delay(deaths, 0.0) if is_proven else now
        recent[key] = Suspicion(Suspected(2 + is_proven), until, deaths)
    return recent


def after_survival(known: Suspicions, key: str) -> dict[str, Suspicion]:
    """The suspicions once `key` was reconciled and the worker lived."""
    return {other: suspicion for other, suspicion in known.items() if other != key}


class Quarantine:
    """What speaks against keys, by controller: it is the same in any shard."""

    def __init__(self) -> None:
        self._suspicions: dict[str, dict[str, Suspicion]] = {}

    def record_death(
        self, controller: str, executing: Iterable[str], now: float
    ) -> dict[str, Suspicion]:
        """A worker died with these keys executing; returns those that it quarantines."""
        before = self.suspicions(controller)
        after = self._suspicions[controller] = after_death(before, executing, now)
        return {k: s for k, s in after.items() if s.is_quarantined and s != before.get(k)}

    def record_survival(self, controller: str, key: str) -> None:
        """A suspected key was reconciled, and the worker lives."""
        self._suspicions[controller] = after_survival(self.suspicions(controller), key)

    def suspicions(self, controller: str) -> Suspicions:
        """What a new worker of this controller has to know."""
        return self._suspicions.get(controller, {})

    def quarantined(self, controller: str) -> dict[str, float]:
        """Keys to leave alone until a monotonic time."""
        known = self.suspicions(controller)
        return {key: entry.until for key, entry in known.items() if entry.is_quarantined}

    def status(self, now: float) -> dict[str, dict[str, float]]:
        """Quarantined keys by controller, each with the seconds until its next try."""
        return {
            controller: {
                key: round(until - now, 1) for key, until in self.quarantined(controller).items()
            }
            for controller in self._suspicions
            if self.quarantined(controller)
        }
