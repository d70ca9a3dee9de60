"""What a worker has not settled yet and why: for `status`, and for logs that say a thing once."""

import logging
import time
from collections import Counter, deque

from ccm.model.objects import Json

log = logging.getLogger(__name__)

NEWS = 10  # of the newest


class Ledger:
    """Unsettled keys with their reasons. A reason that many keys share is logged once."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._failures: dict[str, str] = {}  # those of the reasons that are failures
        self._failing: Counter[str] = Counter()
        self._news: deque[tuple[float, str, str, str]] = deque(maxlen=NEWS)
        self.settled = 0

    def __len__(self) -> int:
        return len(self._reasons)

    @property
    def failing(self) -> int:
        """How many of the unsettled keys do not just wait."""
        return len(self._failures)

    def news(self, now: float) -> list[Json]:
        """The last things that were logged, newest first; `now` is monotonic."""
        return [
            {"key": key, "what": what, "why": why, "seconds_ago": round(now - at, 1)}
            for at, what, key, why in reversed(self._news)
        ]

    def first(self, count: int) -> dict[str, str]:
        """Some unsettled keys and why."""
        return dict(list(self._reasons.items())[:count])

    def settle(self, key: str) -> None:
        """Nothing is left to do for `key`."""
        self._reasons.pop(key, None)
        if was := self._forget_failure(key):
            log.info("settled again", extra={"key": key, "was": was})
            self._note("settled again", key, f"it was: {was}")
        self.settled += 1

    def wait(self, key: str, why: str) -> None:
        """`key` waits for something ordinary; an earlier failure stays its reason meanwhile."""
        self._reasons.setdefault(key, why)

    def fail(self, key: str, why: str) -> None:
        """`key` could not be settled."""
        if self._failures.get(key) == why:
            return
        self._forget_failure(key)
        self._reasons[key] = self._failures[key] = why
        self._failing[why] += 1
        if self._failing[why] == 1:
            log.warning("cannot settle", extra={"key": key, "why": why})
            self._note("cannot settle", key, why)

    def _note(self, what: str, key: str, why: str) -> None:
        self._news.append((time.monotonic(), what, key, why))

    def _forget_failure(self, key: str) -> str | None:
        """The failure that `key` no longer has, if no other key has it either."""
        why = self._failures.pop(key, None)
        if why is None:
            return None
        self._failing[why] -= 1
        if self._failing[why]:
            return None
        del self._failing[why]
        return why
