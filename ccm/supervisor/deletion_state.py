"""What the deletion governor keeps on disk: the freeze, and the permits that still count."""

import os
from dataclasses import dataclass
from pathlib import Path

import orjson

from ccm.directories import no_follow


@dataclass(frozen=True, slots=True)
class Freeze:
    """A stop of all deletions by a person; `at` is wall time to print, nothing is decided by it."""

    why: str
    by: str
    at: str


@dataclass(frozen=True, slots=True)
class DeletionState:
    """The freeze, and the names of the Nodes permitted within the window."""

    freeze: Freeze | None = None
    permitted: tuple[str, ...] = ()


def read_state(path: Path) -> DeletionState:
    """What the file says; a missing one is empty. Raises OSError, or ValueError for garbage."""
    try:
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
    draft = path.with_name(f"{path.name}.new")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(draft, "wb", opener=no_follow) as file:
        file.write(orjson.dumps(state, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS))
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
