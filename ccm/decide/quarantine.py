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
