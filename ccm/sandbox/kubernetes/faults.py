"""Fault injection: what goes wrong with which requests, and how often."""

import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from ccm.sandbox.kubernetes.objects import Object

Action = Literal["respond", "delay", "reset", "silence", "garbage", "gone"]
ACTIONS: tuple[Action, ...] = get_args(Action)

# An object that no client can read, where a fault does not say what to send.
GARBAGE = b'{"metadata":"garbage","spec":[]}'


@dataclass(frozen=True, slots=True)
class KubeFault:
    """What goes wrong, with which requests, and how often; empty matches everything.

    `verb` is Kubernetes' verb of a request (get, list, watch, create, update, patch, delete,
    deletecollection), or "event": one thing that an open watch is about to send.

    respond   answers `status` (with Retry-After when `retry_after` is set) and does nothing.
    delay     waits `seconds`, then goes on.
    reset     drops the connection. `when` says at what point: "before" the request is
              performed, "after" it (done, but the client never hears), or "middle" of the body.
    silence   accepts and then sends nothing for as long as the connection lasts: half-open.
    garbage   puts `text`, or an object of the wrong shape, into a watch as a line of its own
              (verb "event") or before the items of a list.
    gone      ends a watch, or answers a list, with 410.
    """

    action: Action
    verb: str = ""
    resource: str = ""
    name: str = ""
    user_agent: str = ""
    # How many matching requests are spared first, and how many are hit then; None is all.
    skip: int = 0
    times: int | None = 1
    status: int = 429
    retry_after: int | None = None
    message: str = "a fault of the sandbox"
    seconds: float = 0.0
    when: Literal["before", "middle", "after"] = "before"
    text: str = ""

    @staticmethod
    def parse(raw: Object) -> "KubeFault":
        """Return the fault a JSON object describes; ValueError says what is wrong with it."""
        known = {each.name for each in fields(KubeFault)}
        if unknown := raw.keys() - known:
            raise ValueError(f"unknown fields {sorted(unknown)}; known are {sorted(known)}")
        if raw.get("action") not in ACTIONS:
            raise ValueError(f"action must be one of {', '.join(ACTIONS)}")
        return KubeFault(**raw)


@dataclass(slots=True)
class _ActiveFault:
    fault: KubeFault
    met: int = 0
    hit: int = 0

    def hits(self, verb: str, resource: str, name: str, user_agent: str) -> bool:
        """Count a match and tell whether it is one that is hit."""
        fault = self.fault
        # An open watch's events are meant only when they are named.
        verbs = (verb,) if verb == "event" else ("", verb)
        if not (
            fault.verb in verbs
            and fault.resource in ("", resource)
            and fault.name in ("", name)
            and fault.user_agent in user_agent
        ):
            return False
        self.met += 1
        if self.met <= fault.skip or (fault.times is not None and self.hit >= fault.times):
            return False
        self.hit += 1
        return True


class FaultInjector:
    """The faults in force."""

    def __init__(self) -> None:
        self._active: dict[int, _ActiveFault] = {}
        self._numbers = itertools.count(1)

    def add(self, fault: KubeFault) -> int:
        number = next(self._numbers)
        self._active[number] = _ActiveFault(fault)
        return number

    def remove(self, number: int) -> bool:
        return self._active.pop(number, None) is not None

    def clear(self) -> None:
        self._active.clear()

    def match(self, verb: str, *target: str) -> KubeFault | None:
        """Return the oldest fault that hits this request, counted."""
        active = self._active.values()
        return next((each.fault for each in active if each.hits(verb, *target)), None)

    def describe(self) -> Iterator[dict[str, Any]]:
        for number, active in self._active.items():
            yield {"id": number, "met": active.met, "hit": active.hit, **asdict(active.fault)}
