"""Which keys are quarantined because their reconcile ends the worker.

After one death every key that was in flight is a suspect, and its next reconcile runs alone, so
that a second death names the culprit. That one is quarantined: left alone for a while, then tried
again, alone, after longer and longer pauses.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ccm.decide.backoff import Backoff

RETRY = Backoff(first=10.0, most=3600.0, jitter=0.0)


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Deaths with this key in flight, and until when it is left alone (monotonic)."""

    deaths: int
    until: float = 0.0

    @property
    def is_quarantined(self) -> bool:
        return self.deaths >= 2


Suspicions = Mapping[str, Suspicion]


def after_death(known: Suspicions, in_flight: Iterable[str], now: float) -> dict[str, Suspicion]:
    """The suspicions once a worker died with `in_flight`.

    A second death counts against a key only when it was alone in flight: otherwise any of them
    may have been the cause, and each is tried alone next.
    """
    keys = list(in_flight)
    suspicions = dict(known)
    for key in keys:
        before = known.get(key, Suspicion(0))
        is_proven = before.deaths >= 1 and len(keys) == 1
        deaths = before.deaths + 1 if is_proven else max(before.deaths, 1)
        until = now + RETRY.delay(deaths - 1, 0.0) if deaths >= 2 else 0.0
        suspicions[key] = Suspicion(deaths, until)
    return suspicions


def after_survival(known: Suspicions, key: str) -> dict[str, Suspicion]:
    """The suspicions once `key` was reconciled and the worker lived."""
    return {other: suspicion for other, suspicion in known.items() if other != key}


class Quarantine:
    """Keys in flight when a worker died, by controller: they stay suspect in any shard."""

    def __init__(self) -> None:
        self._suspicions: dict[str, dict[str, Suspicion]] = {}

    def record_death(
        self, controller: str, in_flight: Iterable[str], now: float
    ) -> dict[str, Suspicion]:
        """A worker died with these keys in flight; returns those that it quarantines."""
        before = self._suspicions.get(controller, {})
        after = self._suspicions[controller] = after_death(before, in_flight, now)
        return {k: s for k, s in after.items() if s.is_quarantined and s != before.get(k)}

    def record_survival(self, controller: str, key: str) -> None:
        """A suspect was reconciled alone, and the worker lives."""
        self._suspicions[controller] = after_survival(self._suspicions.get(controller, {}), key)

    def suspects(self, controller: str) -> tuple[str, ...]:
        """Keys to reconcile alone, at once."""
        known = self._suspicions.get(controller, {})
        return tuple(key for key, suspicion in known.items() if not suspicion.is_quarantined)

    def quarantined(self, controller: str) -> dict[str, float]:
        """Keys to leave alone until a monotonic time, and then to reconcile alone."""
        known = self._suspicions.get(controller, {})
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
