"""The runtime directory as it is, and whether a supervisor lives in it; nothing is changed."""

import fcntl
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from ccm.bus.control import NotRunning, ask
from ccm.bus.paths import RuntimePaths
from ccm.model.objects import Json, mapping

PATIENCE = 2.0  # seconds for a supervisor to answer


@dataclass(frozen=True, slots=True)
class DirectorySeen:
    """A directory, or the nearest one above it that exists; `mode` and `owner` are of `found`."""

    path: Path
    found: Path
    is_directory: bool
    owner: int
    mode: int
    is_writable: bool

    @property
    def exists(self) -> bool:
        return self.found == self.path


@dataclass(frozen=True, slots=True)
class RuntimeSeen:
    """`holder` is the process that has the lock; `status` what it answers, empty for nothing."""

    directory: DirectorySeen
    user: int  # who looks
    socket_bytes: int  # of the longest path of a socket
    holder: str = ""
    status: Json | None = None

    @property
    def is_running(self) -> bool:
        """Whether a supervisor works here, as far as it says."""
        return bool(self.status)

    @property
    def may_act(self) -> bool:
        return bool(mapping(mapping(self.status).get("leader")).get("may_act"))


def look_at_directory(path: Path, is_link_fine: bool = True) -> DirectorySeen:
    """A link that leads nowhere, or must not be one, is no directory."""
    found = next(each for each in (path, *path.parents) if os.path.lexists(each))
    is_followed = found.exists() and (is_link_fine or found != path)
    info = found.stat(follow_symlinks=is_followed)
    return DirectorySeen(
        path=path,
        found=found,
        is_directory=stat.S_ISDIR(info.st_mode),
        owner=info.st_uid,
        mode=stat.S_IMODE(info.st_mode),
        is_writable=os.access(found, os.W_OK | os.X_OK),
    )


def look_at_runtime(directory: str) -> RuntimeSeen:
    paths = RuntimePaths(Path(directory).absolute())
    holder = _holder(paths.lock)
    return RuntimeSeen(
        directory=look_at_directory(paths.directory, is_link_fine=False),
        user=os.geteuid(),
        socket_bytes=len(os.fsencode(paths.control)),
        holder=holder,
        status=_status(paths.control) if holder else None,
    )


def _holder(lock: Path) -> str:
    """The process that holds the lock; empty when nobody does, or nobody can tell."""
    try:
        with open(lock, encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return ""
    except BlockingIOError:
        return lock.read_text(encoding="ascii").strip() or "unknown"
    except OSError:
        return ""


def _status(control: Path) -> Json:
    try:
        return ask(control, {"command": "status"}, PATIENCE)
    except NotRunning:
        return {}
