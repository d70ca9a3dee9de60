"""Who may call the cloud, and how often it was called."""

import itertools
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any, NamedTuple

TOKEN = "token-of-a-simulated-cloud"
"""The bearer token that the cloud accepts until it is given another one."""


class CallKey(NamedTuple):
    """What calls are counted by; status 0 is a call without an answer (yet)."""

    operation: str
    budget: str
    caller: str
    status: int


@dataclass(slots=True)
class CallRecord:
    """One call in the log; `status` and `seconds` are set when it is answered."""

    number: int
    operation: str
    budget: str
    caller: str
    user_agent: str
    wall: float
    monotonic: float
    status: int = 0
    seconds: float = 0.0

    @property
    def key(self) -> CallKey:
        return CallKey(self.operation, self.budget, self.caller, self.status)


class CallCounters:
    """Counts a call when it arrives and files it under its status when it is answered."""

    def __init__(self, keep: int = 10_000) -> None:
        self.log: deque[CallRecord] = deque(maxlen=keep)
        self._counts: Counter[CallKey] = Counter()
        self._numbers = itertools.count(1)
        self._since = 0

    def arrive(self, operation: str, budget: str, caller: str, user_agent: str) -> CallRecord:
        moment = (time.time(), time.monotonic())
        call = CallRecord(next(self._numbers), operation, budget, caller, user_agent, *moment)
        self.log.append(call)
        self._counts[call.key] += 1
        return call

    def answer(self, call: CallRecord, status: int) -> None:
        is_counted = call.number > self._since  # otherwise it arrived before a reset
        self._counts[call.key] -= is_counted
        call.status, call.seconds = status, time.monotonic() - call.monotonic
        self._counts[call.key] += is_counted

    def count(
        self,
        operation: str | None = None,
        budget: str | None = None,
        caller: str | None = None,
        status: int | None = None,
    ) -> int:
        """How many calls there were; whatever is None is not asked about."""
        asked = (operation, budget, caller, status)
        return sum(
            number
            for key, number in self._counts.items()
            if all(want is None or want == have for want, have in zip(asked, key, strict=True))
        )

    @property
    def reads(self) -> int:
        return self.count(budget="read")

    @property
    def writes(self) -> int:
        return self.count(budget="write")

    def reset(self) -> None:
        """Start counting again; calls that are in the air count for neither."""
        self._counts.clear()
        self.log.clear()
        self._since = next(self._numbers)

    def to_json(self) -> dict[str, Any]:
        rows = [{**key._asdict(), "count": count} for key, count in self._counts.items() if count]
        return {
            "total": self.count(),
            "reads": self.reads,
            "writes": self.writes,
            "throttled": self.count(status=429),
            "unanswered": self.count(status=0),
            "rows": sorted(rows, key=lambda row: [str(value) for value in row.values()]),
        }
