"""The last decision about each key, for whoever asks why an object is as it is."""

import time
from collections import OrderedDict
from dataclasses import dataclass

KEPT = 20_000  # keys; beyond that the one decided about longest ago is forgotten


@dataclass(frozen=True, slots=True)
class Decision:
    """How one reconcile ended: `result` is settled, waiting, refused or failed; `at` monotonic."""

    result: str
    message: str
    at: float


class Decisions:
    """The newest decision by key, as many as `KEPT`."""

    def __init__(self) -> None:
        self._decisions: OrderedDict[str, Decision] = OrderedDict()

    def note(self, key: str, result: str, message: str) -> None:
        self._decisions[key] = Decision(result, message, time.monotonic())
        self._decisions.move_to_end(key)
        if len(self._decisions) > KEPT:
            self._decisions.popitem(last=False)

    def last(self, key: str) -> Decision | None:
        return self._decisions.get(key)
