"""Counts of every call to the simulated cloud, and a bounded log of the latest ones."""

import itertools
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any, NamedTuple


class Key(NamedTuple):
    """What calls are counted by; status 0 is a call without an answer (yet)."""

    operation: str
    budget: str
    caller: str
    status: int


@dataclass(slots=True)
class Call:
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


class Counters:
    """Counts a call when it arrives and files it under its status when it is answered."""

    def __init__(self, keep: int = 10_000) -> None:
        self.log: deque[Call] = deque(maxlen=keep)
        self._counts: Counter[Key] = Counter()
        self._numbers = itertools.count(1)
        self._since = 0

    def arrive(self, operation: str, budget: str, caller: str, user_agent: str) -> Call:
        moment = (time.time(), time.monotonic())
        call = Call(next(self._numbers), operation, budget, caller, user_agent, *moment)
        self.log.append(call)
        self._counts[Key(operation, budget, caller, 0)] += 1
        return call

    def answer(self, call: Call, status: int) -> None:
        call.status, call.seconds = status, time.monotonic() - call.monotonic
        if call.number <= self._since:
            return  # it arrived before a reset
        self._counts[Key(call.operation, call.budget, call.caller, 0)] -= 1
        self._counts[Key(call.operation, call.budget, call.caller, status)] += 1

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
        """Start counting anew; calls that are in the air count for neither."""
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
