"""Which key's reconcile ends its worker: found by splitting what was executing when workers died.

One death is an accident, and changes nothing. Keys that were executing at two deaths are suspects:
they are split into small groups, and one group at a time executes, beside all other keys. Who
survives that is a suspect no longer; a group in which a worker dies is split again. A culprit that
is alone in its group is quarantined: left alone for a while, then tried again, after longer and
longer pauses. No group depends on what comes of another one, so several culprits are found.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ccm.decide.backoff import Backoff

RETRY = Backoff(first=10.0, most=3600.0, jitter=0.0)
FORGOTTEN_AFTER = 3600.0  # seconds; then a key has perhaps no object any more
FREE = 0  # the group of keys that were executing at one death: nothing holds them up


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What speaks against a key, how often it was the culprit, and when it is tried again."""

    until: float  # monotonic; of a key that is not quarantined the time of the death
    group: int = FREE  # executes beside no other group; the highest is the youngest
    deaths: int = 0

    @property
    def is_quarantined(self) -> bool:
        return self.deaths > 0


Suspicions = Mapping[str, Suspicion]


def after_death(known: Suspicions, executing: Iterable[str], now: float) -> dict[str, Suspicion]:
    """The suspicions once a worker died while these keys were `executing`.

    The death is held against one group only, and splits what of it was executing.
    """
    keys = list(executing)
    recent = {k: s for k, s in known.items() if now < s.until + FORGOTTEN_AFTER}
    group = max((recent[key].group for key in keys if key in recent), default=None)
    hit = [key for key in keys if key in recent and recent[key].group == group]
    is_proven = len(hit) == 1 and (group != FREE or hit == keys)
    youngest = max((suspicion.group for suspicion in recent.values()), default=FREE)
    size = max(len(hit) // 2, 1)
    after = {key: Suspicion(now) for key in keys} | recent
    for at, key in enumerate(hit):
        deaths = recent[key].deaths + is_proven
        until = now + RETRY.delay(deaths, 0.0) if is_proven else now
        after[key] = Suspicion(until, youngest + 1 + at // size, deaths)
    return after


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
        return {k: s for k, s in after.items() if s.until > now and s != before.get(k)}

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
