"""What a check reports: a state, a message, and what to do about it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ccm.errors import ConfigurationFault

NAMES_IN_MESSAGE = 3


class CheckState(StrEnum):
    """From the best to the worst; only `FAILED` says that something will not work."""

    OK = "ok"
    NOT_CHECKED = "not checked"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement of a check; without a remedy there is nothing to do."""

    state: CheckState
    message: str
    remedy: str = ""


class NotChecked(Exception):
    """What a check needs is not available; another check reports why, or nothing depends on it."""


def ok(message: str) -> Finding:
    """A finding that needs no action."""
    return Finding(CheckState.OK, message)


def not_checked(message: str, remedy: str = "") -> Finding:
    """A finding about what this identity cannot see."""
    return Finding(CheckState.NOT_CHECKED, message, remedy)


def warning(message: str, remedy: str) -> Finding:
    """A finding about what works, but perhaps not as intended."""
    return Finding(CheckState.WARNING, message, remedy)


def failed(message: str, remedy: str) -> Finding:
    """A finding about what will not work."""
    return Finding(CheckState.FAILED, message, remedy)


def from_fault(fault: ConfigurationFault) -> Finding:
    """What would end a start with exit code 78, in the same words."""
    return failed(f"{fault.field}: {fault.problem}", fault.remedy)


def worst(states: Iterable[CheckState]) -> CheckState:
    """The state of a whole: that of its worst part."""
    return max(states, key=list(CheckState).index, default=CheckState.OK)


def abbreviate(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - NAMES_IN_MESSAGE
    return ", ".join(names[:NAMES_IN_MESSAGE]) + (f" and {more} more" if more > 0 else "")


def pluralize(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{count} {noun}" + ("" if count == 1 else "s")
