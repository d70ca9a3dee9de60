"""What a worker has not settled yet and why: for `status`, and for logs that say a thing once."""

import logging
from collections import Counter

log = logging.getLogger(__name__)


class Ledger:
    """Unsettled keys with their reasons. A reason that many keys share is logged once."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._failing: Counter[str] = Counter()
        self.settled = 0

    def __len__(self) -> int:
        return len(self._reasons)

    def first(self, count: int) -> dict[str, str]:
        """Some unsettled keys and why."""
        return dict(list(self._reasons.items())[:count])

    def settle(self, key: str) -> None:
        """Nothing is left to do for `key`."""
        self._drop(key)
        self.settled += 1

    def wait(self, key: str, why: str) -> None:
        """`key` waits for something ordinary; an earlier failure stays its reason meanwhile."""
        self._reasons.setdefault(key, why)

    def fail(self, key: str, why: str) -> None:
        """`key` could not be settled."""
        if self._reasons.get(key) == why:
            return
        self._drop(key)
        self._reasons[key] = why
        self._failing[why] += 1
        if self._failing[why] == 1:
            log.warning("cannot settle", extra={"key": key, "why": why})

    def _drop(self, key: str) -> None:
        why = self._reasons.pop(key, None)
        if why is None or why not in self._failing:
            return
        self._failing[why] -= 1
        if not self._failing[why]:
            del self._failing[why]
            log.info("settled again", extra={"key": key, "was": why})
