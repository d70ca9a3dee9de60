"""Keys that were in hand when a worker died, per duty, and what the next start is told of them."""

import logging
from collections.abc import Iterable

from ccm.decide.quarantine import Suspicion, after_death, after_survival
from ccm.model.objects import Json

log = logging.getLogger(__name__)


class Suspects:
    """Remembers suspicions by duty, so that they follow a key from shard to shard."""

    def __init__(self) -> None:
        self._by_duty: dict[str, dict[str, Suspicion]] = {}

    def after_death(self, controller: str, in_hand: Iterable[str], now: float) -> None:
        before = self._by_duty.get(controller, {})
        after = self._by_duty[controller] = after_death(before, in_hand, now)
        for key, suspicion in after.items():
            if suspicion.is_quarantined and suspicion != before.get(key):
                log.error(
                    "quarantined: its reconcile ended a worker again",
                    extra={"controller": controller, "key": key, "deaths": suspicion.deaths},
                )

    def after_survival(self, controller: str, key: str) -> None:
        self._by_duty[controller] = after_survival(self._by_duty.get(controller, {}), key)

    def suspects(self, controller: str) -> tuple[str, ...]:
        """Keys to be tried alone, at once."""
        known = self._by_duty.get(controller, {})
        return tuple(key for key, suspicion in known.items() if not suspicion.is_quarantined)

    def quarantined(self, controller: str) -> dict[str, float]:
        """Keys to be left alone until a monotonic time, and then tried alone."""
        known = self._by_duty.get(controller, {})
        return {key: entry.until for key, entry in known.items() if entry.is_quarantined}

    def status(self, now: float) -> Json:
        """What `status` shows: quarantined keys by duty, and in how many seconds they are tried."""
        return {
            controller: {
                key: round(until - now, 1) for key, until in self.quarantined(controller).items()
            }
            for controller in self._by_duty
            if self.quarantined(controller)
        }
