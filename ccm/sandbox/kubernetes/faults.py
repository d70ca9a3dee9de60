"""Faults on demand: plans of what shall go wrong with which requests, and how often."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from ccm.sandbox.kubernetes.objects import Object

Action = Literal["respond", "delay", "reset", "silence", "garbage", "gone"]
ACTIONS: tuple[Action, ...] = get_args(Action)

# An object that no client can read, where a fault does not say what to send.
GARBAGE = b'{"metadata":"garbage","spec":[]}'


@dataclass(frozen=True, slots=True)
class Fault:
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
    def parse(raw: Object) -> Fault:
        """Return the fault a JSON object describes; ValueError says what is wrong with it."""
        known = {each.name for each in fields(Fault)}
        if unknown := raw.keys() - known:
            raise ValueError(f"unknown fields {sorted(unknown)}; known are {sorted(known)}")
        if raw.get("action") not in ACTIONS:
            raise ValueError(f"action must be one of {', '.join(ACTIONS)}")
        return Fault(**raw)


@dataclass(frozen=True, slots=True)
class Occasion:
    """What a fault is matched against."""

    verb: str
    resource: str = ""
    name: str = ""
    user_agent: str = ""


@dataclass(slots=True)
class _Planned:
    fault: Fault
    met: int = 0
    hit: int = 0

    def strikes(self, occasion: Occasion) -> bool:
        """Count a match and tell whether it is one that is hit."""
        fault = self.fault
        if not (
            fault.verb in ("", occasion.verb)
            and fault.resource in ("", occasion.resource)
            and fault.name in ("", occasion.name)
            and fault.user_agent in occasion.user_agent
        ):
            return False
        # An open watch's events are meant only when they are named.
        if occasion.verb == "event" and fault.verb != "event":
            return False
        self.met += 1
        if self.met <= fault.skip or (fault.times is not None and self.hit >= fault.times):
            return False
        self.hit += 1
        return True


class Faults:
    """The plans in force."""

    def __init__(self) -> None:
        self._planned: dict[int, _Planned] = {}
        self._numbers = itertools.count(1)

    def add(self, fault: Fault) -> int:
        """Put a plan in force and return its number."""
        number = next(self._numbers)
        self._planned[number] = _Planned(fault)
        return number

    def remove(self, number: int) -> bool:
        return self._planned.pop(number, None) is not None

    def clear(self) -> None:
        self._planned.clear()

    def hits(self, number: int) -> int:
        """Return how often a plan has struck."""
        return self._planned[number].hit

    def take(self, occasion: Occasion) -> Fault | None:
        """Return the oldest plan that strikes now."""
        if not self._planned:
            return None
        for planned in self._planned.values():
            if planned.strikes(occasion):
                return planned.fault
        return None

    def describe(self) -> Iterator[dict[str, Any]]:
        """Yield every plan in force with its number and counts."""
        for number, planned in self._planned.items():
            told = {each.name: getattr(planned.fault, each.name) for each in fields(Fault)}
            yield {"id": number, "met": planned.met, "hit": planned.hit, **told}
