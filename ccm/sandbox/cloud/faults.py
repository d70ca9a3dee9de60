"""What can be made to go wrong, for which calls and how often; `gateway` makes it happen."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Self

from ccm.sandbox.cloud.fields import Fields
from ccm.sandbox.cloud.operations import Answer
from ccm.sandbox.cloud.problems import Problem, invalid, missing
from ccm.sandbox.cloud.state import CloudState


class Kind(StrEnum):
    """How a call fails, or how its answer is wrong."""

    ERROR = "error"
    """A server error, 500 unless `status` says otherwise."""
    DENIED = "denied"
    """403, or 401 by `status`."""
    THROTTLE = "throttle"
    """429 with `retry_after`."""
    TIMEOUT = "timeout"
    """No answer at all: the connection stays open and silent."""
    RESET = "reset"
    """The connection is reset instead of an answer."""
    GARBAGE = "garbage"
    """A 200 whose body is `body`."""
    SLOW = "slow"
    """A right answer, `delay` seconds late."""
    STALE = "stale"
    """A read answers from the state as it was when the fault was set."""
    EMPTY = "empty"
    """A list has nothing in it, and says of nothing that it is missing."""
    PARTIAL = "partial"
    """The last `share` of a list is left out without a word."""
    ABSENT = "absent"
    """The last `share` of what was asked for is said not to exist: the cloud's lie."""


READS_ONLY = frozenset({Kind.STALE, Kind.EMPTY, Kind.PARTIAL, Kind.ABSENT})
ANSWERED = READS_ONLY | {Kind.SLOW}
"""The kinds whose call is performed and answered, rightly or not."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong; `remaining` of None means until it is cleared."""

    kind: Kind
    operation: str = "*"
    remaining: int | None = None
    share: float = 1.0
    status: int = 0
    delay: float = 0.0
    retry_after: float = 1.0
    performed: bool = False
    """Whether the call does its work before the answer goes wrong (error, timeout, reset, …)."""
    body: str = "<html>not what you asked for</html>"
    id: str = ""
    hits: int = 0
    view: CloudState | None = field(default=None, repr=False, compare=False)

    def matches(self, operation: str, budget: str) -> bool:
        if self.kind in READS_ONLY and budget != "read":
            return False
        return fnmatchcase(operation, self.operation)

    def to_json(self) -> dict[str, Any]:
        names = ("id", "kind", "operation", "remaining", "hits", "share", "status", "delay")
        return {name: getattr(self, name) for name in (*names, "retry_after", "performed", "body")}

    @classmethod
    def from_json(cls, body: object) -> Self:
        fields = Fields(body, "a fault")
        kind = fields.text("kind")
        if kind not in list(Kind):
            raise invalid(f"{kind!r} is not a kind of fault: {', '.join(Kind)}")
        fault = cls(
            kind=Kind(kind),
            operation=fields.text("operation", "*"),
            remaining=fields.whole("remaining") if fields.has("remaining") else None,
            share=fields.number("share", 1.0),
            status=fields.whole("status", 0),
            delay=fields.number("delay", 0.0),
            retry_after=fields.number("retry_after", 1.0),
            performed=fields.flag("performed"),
            body=fields.text("body", "<html>not what you asked for</html>"),
            id=fields.text("id", ""),
            hits=fields.whole("hits", 0),
        )
        fields.done()
        if not 0 <= fault.share <= 1:
            raise invalid("the share of a fault is between 0 and 1")
        return fault


class FaultPlan:
    """The faults in force, in the order they were set; the first that matches a call has it."""

    def __init__(self, snapshot: Callable[[], CloudState]) -> None:
        self._snapshot = snapshot
        self._faults: dict[str, Fault] = {}
        self._numbers = itertools.count(1)

    def set(self, fault: Fault) -> Fault:
        view = self._snapshot() if fault.kind is Kind.STALE else None
        new = replace(fault, id=f"fault-{next(self._numbers)}", hits=0, view=view)
        self._faults[new.id] = new
        return new

    def active(self) -> list[Fault]:
        """The faults in force; one that has run its count is no longer among them."""
        return list(self._faults.values())

    def clear(self, fault_id: str | None = None) -> None:
        """Clear one fault, or all."""
        if fault_id is None:
            self._faults.clear()
        elif self._faults.pop(fault_id, None) is None:
            raise missing(f"fault {fault_id}")

    def take(self, operation: str, budget: str) -> Fault | None:
        """The fault that this call suffers, counted."""
        fault = next((f for f in self._faults.values() if f.matches(operation, budget)), None)
        if fault is None:
            return None
        remaining = None if fault.remaining is None else fault.remaining - 1
        if remaining is not None and remaining <= 0:
            del self._faults[fault.id]
        else:
            self._faults[fault.id] = replace(fault, remaining=remaining, hits=fault.hits + 1)
        return fault


def refusal(fault: Fault) -> Problem | None:
    """The answer of a fault that refuses; None for the other kinds."""
    match fault.kind:
        case Kind.ERROR:
            return Problem(fault.status or 500, "InternalError", "something broke in the cloud")
        case Kind.DENIED:
            return Problem(fault.status or 403, "AccessDenied", "these credentials may not do this")
        case Kind.THROTTLE:
            headers = {"Retry-After": f"{fault.retry_after:g}"}
            return Problem(429, "RateLimitExceeded", "too many calls", headers)
        case _:
            return None


def distorted(fault: Fault, answer: Answer) -> Answer:
    """The answer as the fault makes it look; one that is not a list stays as it is."""
    body = answer.body
    if not isinstance(body, dict) or "items" not in body:
        return answer
    items = body["items"]
    kept = len(items) - math.ceil(len(items) * fault.share)
    match fault.kind:
        case Kind.EMPTY:
            return replace(answer, body={key: [] for key in ("items", "not_found") if key in body})
        case Kind.PARTIAL:
            return replace(answer, body={**body, "items": items[:kept]})
        case Kind.ABSENT if answer.asked_by:
            lost = [getattr(item, answer.asked_by) for item in items[kept:]]
            changed = {"items": items[:kept], "not_found": [*body["not_found"], *lost]}
            return replace(answer, body={**body, **changed})
        case _:
            return answer
