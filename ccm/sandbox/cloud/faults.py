"""What can be made to go wrong, for which calls and how often; `server` makes it happen."""

import itertools
import math
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from ccm.sandbox.cloud.codec import CloudApiError, invalid, not_found
from ccm.sandbox.cloud.operations import OPERATIONS, OperationRequest
from ccm.sandbox.cloud.state import CloudState


class CloudFaultKind(StrEnum):
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


READ_KINDS = frozenset(
    {CloudFaultKind.STALE, CloudFaultKind.EMPTY, CloudFaultKind.PARTIAL, CloudFaultKind.ABSENT}
)
ANSWERED_KINDS = READ_KINDS | {CloudFaultKind.SLOW}
"""The kinds whose call is performed and answered, rightly or not."""
REFUSALS = {
    CloudFaultKind.ERROR: (500, "InternalError", "something broke in the cloud"),
    CloudFaultKind.DENIED: (403, "AccessDenied", "these credentials may not do this"),
    CloudFaultKind.THROTTLE: (429, "RateLimitExceeded", "too many calls"),
}
"""The status, unless the fault has another, the code and the message of a refusal."""


@dataclass(frozen=True, slots=True)
class CloudFault:
    """One thing that goes wrong; `remaining` of None means until it is cleared."""

    kind: CloudFaultKind
    operation: str = "*"
    remaining: int | None = None
    share: float = 1.0
    status: int = 0
    delay: float = 0.0
    retry_after: float = 1.0
    performed: bool = False
    """Whether the call does its work before the answer goes wrong (error, timeout, reset, …)."""
    body: str = "<html>not what you asked for</html>"
    message: str = ""
    """What a refusal says, instead of its usual words."""
    message_size: int = 0
    """Characters to which the message is repeated, if any."""
    id: str = ""
    hits: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise invalid("the share of a fault is between 0 and 1")

    def matches(self, operation: str, budget: str) -> bool:
        if self.kind in READ_KINDS and budget != "read":
            return False
        return fnmatchcase(operation, self.operation)


class CloudFaults:
    """The faults in force, in the order they were set; the first that matches a call has it."""

    def __init__(self, state: CloudState) -> None:
        self._state = state
        self._snapshots: dict[str, CloudState] = {}
        self._faults: dict[str, CloudFault] = {}
        self._numbers = itertools.count(1)

    def set(self, fault: CloudFault) -> CloudFault:
        if not any(fault.matches(each.name, each.budget) for each in OPERATIONS):
            names = ", ".join(each.name for each in OPERATIONS)
            raise invalid(f"{fault.operation!r} never meets {fault.kind}; operations are {names}")
        new = replace(fault, id=f"fault-{next(self._numbers)}", hits=0)
        if new.kind is CloudFaultKind.STALE:
            self._snapshots[new.id] = self._state.snapshot()
        self._faults[new.id] = new
        return new

    def active(self) -> list[CloudFault]:
        """The faults in force; one that has run its count is no longer among them."""
        return list(self._faults.values())

    def clear(self, fault_id: str | None = None) -> None:
        if fault_id is None:
            self._faults.clear()
            self._snapshots.clear()
        elif self._faults.pop(fault_id, None) is None:
            raise not_found(f"fault {fault_id}")
        else:
            self._snapshots.pop(fault_id, None)

    def match(self, operation: str, budget: str) -> tuple[CloudFault | None, CloudState]:
        """The fault that this call suffers, counted, and the state that the call sees."""
        fault = next((f for f in self._faults.values() if f.matches(operation, budget)), None)
        if fault is None:
            return None, self._state
        state = self._snapshots.get(fault.id, self._state)
        remaining = None if fault.remaining is None else fault.remaining - 1
        if remaining is not None and remaining <= 0:
            self.clear(fault.id)
        else:
            self._faults[fault.id] = replace(fault, remaining=remaining, hits=fault.hits + 1)
        return fault, state


def refusal(fault: CloudFault) -> CloudApiError:
    """The answer of a fault whose kind is one of `REFUSALS`."""
    status, code, message = REFUSALS[fault.kind]
    is_throttled = fault.kind is CloudFaultKind.THROTTLE
    headers = {"Retry-After": f"{fault.retry_after:g}"} if is_throttled else {}
    message = fault.message or message
    if size := fault.message_size:
        message = (message * (size // len(message) + 1))[:size]
    return CloudApiError(fault.status or status, code, message, headers)


def distorted(fault: CloudFault, call: OperationRequest, body: Any) -> Any:
    """The answer as the fault makes it look; one that is not a list stays as it is."""
    if not isinstance(body, dict) or "items" not in body:
        return body
    items = body["items"]
    kept = len(items) - math.ceil(len(items) * fault.share)
    match fault.kind:
        case CloudFaultKind.EMPTY:
            return {key: [] for key in ("items", "not_found") if key in body}
        case CloudFaultKind.PARTIAL:
            return {**body, "items": items[:kept]}
        case CloudFaultKind.ABSENT if "not_found" in body:
            asked_by = "name" if "names" in call.query else "id"
            lost = [getattr(item, asked_by) for item in items[kept:]]
            return {**body, "items": items[:kept], "not_found": [*body["not_found"], *lost]}
        case _:
            return body
