"""The runtime directory of one supervisor: its lock and its sockets."""

import fcntl
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from ccm.directories import make_private, no_follow
from ccm.errors import ConfigurationFault

SOCKET_PATH_LIMIT = 107  # bytes; sun_path of Linux, less the final zero


@dataclass(frozen=True, slots=True)
class RuntimePaths:
    """Where the parts of one supervisor meet; `held` is its lock, by device and inode."""

    directory: Path
    held: tuple[int, int] = (0, 0)

    @property
    def bus(self) -> Path:
        return self.directory / "bus.sock"

    @property
    def control(self) -> Path:
        return self.directory / "control.sock"

    @property
    def lock(self) -> Path:
        return self.directory / "supervisor.lock"

    def are_held(self) -> bool:
        """Whether the lock is still in its place, so that no other supervisor may be there."""
        try:
            return _identity(self.lock.stat()) == self.held
        except OSError:
            return False


def claim(directory: str) -> tuple[RuntimePaths, TextIO]:
    """Make the directory ours alone (0700) and lock it; the lock lasts as long as the open file.

    The lock comes before any bind: a second bind on a ZeroMQ socket path succeeds silently and
    steals the endpoint. Raises `ConfigurationFault`.
    """
    paths = RuntimePaths(Path(directory).absolute())
    if len(os.fsencode(paths.control)) > SOCKET_PATH_LIMIT:
        raise _fault(directory, "is too long for a socket in it", "choose a shorter path")
    try:
        make_private(paths.directory)
        lock = open(  # noqa: SIM115 - held until the end
            paths.lock, "a+", encoding="ascii", opener=no_follow
        )
    except OSError as error:
        raise _fault(
            directory,
            f"cannot be used: {error.strerror}",
            "choose a directory that this user may write",
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise _fault(
            directory,
            f"is in use by a running supervisor (pid {holder})",
            "stop that one first, or choose another directory",
        ) from error
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    for leftover in (paths.bus, paths.control):
        leftover.unlink(missing_ok=True)
    return replace(paths, held=_identity(os.fstat(lock.fileno()))), lock


def _identity(info: os.stat_result) -> tuple[int, int]:
    return info.st_dev, info.st_ino


def _fault(directory: str, problem: str, remedy: str) -> ConfigurationFault:
    return ConfigurationFault("--runtime-dir", f"{directory} {problem}", remedy)
