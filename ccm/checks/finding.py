"""What a check says: a state, what was seen, and what to do about it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ccm.errors import ConfigurationFault

SHOWN = 3  # names of many in one sentence


class State(StrEnum):
    """From the best to the worst; only `FAILED` says that something will not work."""

    OK = "ok"
    NOT_CHECKED = "not checked"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was seen; all is well without a remedy."""

    state: State
    seen: str
    remedy: str = ""


class NotChecked(Exception):
    """What a check needs cannot be had; another check says why, or nobody has to mind."""


def ok(seen: str) -> Finding:
    return Finding(State.OK, seen)


def not_checked(seen: str, remedy: str = "") -> Finding:
    return Finding(State.NOT_CHECKED, seen, remedy)


def warning(seen: str, remedy: str) -> Finding:
    return Finding(State.WARNING, seen, remedy)


def failed(seen: str, remedy: str) -> Finding:
    return Finding(State.FAILED, seen, remedy)


def of_fault(fault: ConfigurationFault) -> Finding:
    """What would end a start with exit code 78, in the same words."""
    return failed(f"{fault.field}: {fault.problem}", fault.remedy)


def worst(states: Iterable[State]) -> State:
    return max(states, key=list(State).index, default=State.OK)


def some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def counted(count: int, what: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{count} {what}" + ("" if count == 1 else "s")
