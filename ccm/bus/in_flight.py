"""Which keys a worker has in flight, in a file that outlives it, however it ends."""

import errno
import logging
import mmap
import os
from pathlib import Path

from ccm.directories import no_follow

log = logging.getLogger(__name__)

SLOT = 320  # bytes: two for the length, the rest for the key; a longer key is cut
SLOTS = 8192
SIZE = SLOT * SLOTS
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM)


class InFlightJournal:
    """The worker's side: one memory write when a key is taken and one when it is done.

    The pages belong to the kernel, so they are there after a SIGKILL too. Keys beyond the number of
    slots are not recorded.
    """

    def __init__(self, path: Path) -> None:
        self._map = _allocated(path)
        self._free = list(range(SLOTS - 1, -1, -1))
        self._slots: dict[str, int] = {}

    def take(self, key: str) -> None:
        if not self._free or key in self._slots:
            return
        slot = self._slots[key] = self._free.pop()
        text = key.encode()[: SLOT - 2]
        at = slot * SLOT
        self._map[at + 2 : at + 2 + len(text)] = text
        self._map[at : at + 2] = len(text).to_bytes(2, "big")

    def done(self, key: str) -> None:
        slot = self._slots.pop(key, None)
        if slot is not None:
            self._map[slot * SLOT : slot * SLOT + 2] = b"\0\0"
            self._free.append(slot)

    def close(self) -> None:
        self._map.close()


def _allocated(path: Path) -> mmap.mmap:
    """The mapped file, or memory that dies with us where the file system is full.

    A page of a sparse file that finds no room on first use is a SIGBUS.
    """
    try:
        with open(path, "w+b", opener=no_follow) as file:
            os.posix_fallocate(file.fileno(), 0, SIZE)
            return mmap.mmap(file.fileno(), SIZE)
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        log.warning("no room for the keys in flight: a death will name none", extra={"path": path})
        return mmap.mmap(-1, SIZE)


def read_in_flight(path: Path) -> list[str]:
    """The keys that were in flight when the worker ended; none when it left no file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    keys = []
    for at in range(0, len(content), SLOT):
        length = int.from_bytes(content[at : at + 2], "big")
        if 0 < length <= SLOT - 2:
            keys.append(content[at + 2 : at + 2 + length].decode(errors="replace"))
    return keys
