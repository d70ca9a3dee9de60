"""Directories and files that are ours alone: no other user made them, or can exchange them.

And those of the operator, of which each is read in no time and with little memory.
"""

import os
import stat
from collections.abc import Iterable
from errno import EFBIG, EINVAL, ENOTDIR, EPERM
from pathlib import Path

MAX_FILE = 1 << 20
"""Bytes: what is longer is no configuration."""


def make_private(directory: Path) -> None:
    """Make it where it is missing, and ours alone (0700); raises as `check_private` does."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_private(directory)
    if stat.S_IMODE(directory.stat().st_mode) != 0o700:
        directory.chmod(0o700)


def check_private(directory: Path) -> None:
    """Raise OSError unless it is a directory of this user that no other user can exchange."""
    info = directory.lstat()
    check_trusted(directory)
    if not stat.S_ISDIR(info.st_mode):
        raise NotADirectoryError(ENOTDIR, "it is not a directory")
    if info.st_uid != os.geteuid():
        raise PermissionError(EPERM, f"it belongs to user {info.st_uid}")


def check_trusted(path: Path) -> None:
    """Raise OSError when another user owns, or can exchange, a directory or link on the way."""
    path.stat()  # ends a circle of links with the system's own error
    _follow(Path("/"), path.absolute().parts[1:])


def no_follow(path: str, flags: int) -> int:
    """The `opener` for a file that no other user reads: a link in its place is an error."""
    descriptor = os.open(path, flags & ~os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    info = os.fstat(descriptor)
    if info.st_nlink > 1 or info.st_uid != os.geteuid():
        os.close(descriptor)
        raise PermissionError(EPERM, f"{path} is not ours alone")
    if flags & os.O_TRUNC:
        os.ftruncate(descriptor, 0)
    return descriptor


def read_bounded(file: Path) -> bytes:
    """The content of a file; OSError when it cannot be read, or is too long.

    A pipe, for which one would wait until someone writes, is none.
    """
    with open(
        file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)
    ) as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise OSError(EINVAL, "it is not a regular file")
        content = opened.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise OSError(EFBIG, f"it has more than {MAX_FILE} bytes")
    return content


def replace_file(path: Path, content: bytes) -> None:
    """Write a file of ours, which readers see complete or as it was; it survives a crash."""
    draft = path.with_name(f"{path.name}.new")
    with open(draft, "wb", opener=no_follow) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _follow(at: Path, parts: Iterable[str]) -> Path:
    """Where the parts lead to from `at`, every one of them and of the links in it checked."""
    for part in parts:
        place = at.parent if part == ".." else at / part
        info = place.lstat()
        _check_owner(place, info)
        if stat.S_ISLNK(info.st_mode):
            target = place.readlink()
            start = Path("/") if target.is_absolute() else at
            place = _follow(start, target.parts[target.is_absolute() :])
        at = place
    return at


def _check_owner(place: Path, info: os.stat_result) -> None:
    # The owner of the root directory owns the machine: in a user namespace that is not always 0.
    if info.st_uid not in (0, os.geteuid(), os.stat("/").st_uid):
        raise PermissionError(EPERM, f"{place} belongs to user {info.st_uid}")
    writers = stat.S_IWOTH
    if info.st_gid not in (0, os.getegid(), *os.getgroups()):
        writers |= stat.S_IWGRP
    is_open = stat.S_ISDIR(info.st_mode) and info.st_mode & writers
    # A volume of a Pod is open to all users, of which there is one.
    if is_open and not info.st_mode & stat.S_ISVTX and not place.is_mount():
        raise PermissionError(EPERM, f"other users can exchange what is in {place}")


def default_runtime_dir() -> str:
    """Where sockets and the lock live: systemd's directory for root, the user's own otherwise."""
    if given := os.environ.get("CCM_RUNTIME_DIR"):  # for commands, which do not read all settings
        return given
    if os.geteuid() == 0:
        return "/run/ccm-supervisor"
    base = os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/ccm-supervisor-{os.geteuid()}"
    return os.path.join(base, "ccm-supervisor")
