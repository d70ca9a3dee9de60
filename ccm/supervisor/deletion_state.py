"""What the deletion governor keeps on disk: the freeze, and the permits that still count; and why
the status says that nothing is deleted."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import orjson

from ccm.directories import check_trusted, replace_file
from ccm.durations import format_duration
from ccm.model.status import DeletionStatus

NO_REASON = "no reason given"


@dataclass(frozen=True, slots=True)
class Freeze:
    """A stop of all deletions by a person; `at` is wall time to print, nothing is decided by it."""

    why: str
    by: str
    at: str


def new_freeze(why: str, by: str) -> Freeze:
    """A freeze from now on."""
    return Freeze(why or NO_REASON, by, datetime.now(UTC).isoformat(timespec="seconds"))


@dataclass(frozen=True, slots=True)
class DeletionState:
    """The freeze, and the names of the Nodes permitted within the window."""

    freeze: Freeze | None = None
    permitted: tuple[str, ...] = ()


def read_state(path: Path) -> DeletionState:
    """What the file says; a missing one is empty. Raises OSError, or ValueError for garbage.

    OSError also where another user can exchange it.
    """
    try:
        check_trusted(path)
        body = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return DeletionState()
    match body:
        case {"freeze": freeze, "permitted": [*names]} if all(isinstance(n, str) for n in names):
            return DeletionState(freeze_in(freeze), tuple(names))
    raise ValueError("it is not a state of deletions")


def freeze_in(body: object) -> Freeze | None:
    """A freeze as JSON, or none; raises ValueError for anything else."""
    match body:
        case None:
            return None
        case {"why": str(why), "by": str(by), "at": str(at)}:
            return Freeze(why, by, at)
    raise ValueError("its freeze is not understood")


def write_state(path: Path, state: DeletionState) -> None:
    """Replace the file atomically, safe against a crash or a power cut."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_trusted(path.parent)
    replace_file(path, orjson.dumps(state, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS))
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def why_blocked(deletions: DeletionStatus) -> Iterator[str]:
    """Why no node at all is deleted, when that is so."""
    yield from why_frozen(deletions)
    yield from why_stopped(deletions)


def why_frozen(deletions: DeletionStatus) -> Iterator[str]:
    """Who wants that no node is deleted, if anyone does."""
    if frozen := deletions["frozen"]:
        yield f"Deletions are frozen by {frozen['by']} since {frozen['at']}: {frozen['why']}"


def why_stopped(deletions: DeletionStatus) -> Iterator[str]:
    """What is wrong, so that no node is deleted."""
    if error := deletions["last_error"]:
        yield f"Deletions are stopped: {error}"
    if held := deletions["held"]:
        held_for = format_duration(round(deletions["held_seconds"]))
        yield f"Deletions have been on hold for {held_for}: {held}"
