"""Log records for systemd's journal, each with its fields, by the journal's own protocol."""

import logging
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TextIO, TypeVar

T = TypeVar("T")

SOCKET = "/run/systemd/journal/socket"
IDENTIFIER = "ccm-supervisor"
PRIORITIES = {logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6, logging.DEBUG: 7}
MAX_NAME_LENGTH = 64
READER_PATIENCE = 0.5  # seconds that a reader who is behind is waited for, in `PERIOD`
PERIOD = 60.0  # seconds
NOT_READ = "%d log lines dropped: they were not read"

_NOT_IN_NAMES = re.compile(r"[^A-Z0-9_]")


def is_journal(stream: TextIO) -> bool:
    """Whether the journal takes in what is written there, as systemd says to its services."""
    try:
        info = os.fstat(stream.fileno())
    except OSError:  # it is not a regular file
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{info.st_dev}:{info.st_ino}"


class Patience:
    """What is left of `READER_PATIENCE`, which all records of a process share.

    With as much for each, a reader who is slow would hold the process up for good.
    """

    def __init__(self) -> None:
        self._left, self._at = READER_PATIENCE, time.monotonic()

    def spend(self, wait: Callable[[float], T]) -> T:
        """What `wait` returns, which is given how many seconds it may take."""
        began = time.monotonic()
        regained = (began - self._at) * READER_PATIENCE / PERIOD
        self._left = min(self._left + regained, READER_PATIENCE)
        try:
            return wait(self._left)
        finally:
            self._at = time.monotonic()
            self._left = max(self._left - (self._at - began), 0.0)


class JournalHandler(logging.Handler):
    """Sends records to the journal; `fields_of` makes their fields, `MESSAGE` among them.

    A record that cannot be sent, as one that is too long, goes to `otherwise`. While the journal
    reads nothing, records are dropped and counted: any user of the host may keep it busy.
    """

    def __init__(
        self,
        fields_of: Callable[[logging.LogRecord], Mapping[str, str]],
        otherwise: logging.Handler,
        path: str = SOCKET,
    ) -> None:
        super().__init__()
        self._fields_of, self._otherwise, self._path = fields_of, otherwise, path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._dropped, self._patience = 0, Patience()

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        priority = PRIORITIES.get(record.levelno, 3)
        head = {"PRIORITY": str(priority), "SYSLOG_IDENTIFIER": IDENTIFIER}
        fields = head | dict(self._fields_of(record))
        if self._dropped:
            fields["MESSAGE"] = f"{NOT_READ % self._dropped}; {fields['MESSAGE']}"
        send = partial(self._send, encoded(fields))
        try:
            try:
                send(0.0)
            except BlockingIOError:
                self._patience.spend(send)
        except (TimeoutError, BlockingIOError):
            self._dropped += 1
        except OSError:
            self._otherwise.handle(record)
        else:
            self._dropped = 0

    def close(self) -> None:
        self._socket.close()
        super().close()

    def _send(self, datagram: bytes, patience: float) -> None:
        self._socket.settimeout(patience)
        self._socket.sendto(datagram, self._path)


def field_name(key: str) -> str:
    """What a field of ours is called in the journal, which takes no other characters."""
    return "CCM_" + _NOT_IN_NAMES.sub("_", key.upper())[: MAX_NAME_LENGTH - 4]


def encoded(fields: Mapping[str, str]) -> bytes:
    """One datagram: of each field its name, the length of its value, and that value as it is."""
    parts = []
    for name, value in fields.items():
        data = value.encode(errors="backslashreplace")
        parts.append(name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n")
    return b"".join(parts)
