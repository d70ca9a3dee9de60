"""Log records for systemd's journal, each with its fields, by the journal's own protocol."""

import logging
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from typing import TextIO

SOCKET = "/run/systemd/journal/socket"
IDENTIFIER = "ccm-supervisor"
PRIORITIES = {logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6, logging.DEBUG: 7}
MAX_NAME_LENGTH = 64
READER_PATIENCE = 0.5  # seconds that a reader who is behind is waited for, once
NO_PATIENCE = 60.0  # seconds after that in which it is not
NOT_READ = "%d log lines dropped: they were not read"

_NOT_IN_NAMES = re.compile(r"[^A-Z0-9_]")


def is_journal(stream: TextIO) -> bool:
    """Whether the journal takes in what is written there, as systemd says to its services."""
    try:
        info = os.fstat(stream.fileno())
    except OSError:  # it is not a regular file
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{info.st_dev}:{info.st_ino}"


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
        self._dropped, self._no_wait_until = 0, 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        priority = PRIORITIES.get(record.levelno, 3)
        head = {"PRIORITY": str(priority), "SYSLOG_IDENTIFIER": IDENTIFIER}
        fields = head | dict(self._fields_of(record))
        if self._dropped:
            fields["MESSAGE"] = f"{NOT_READ % self._dropped}; {fields['MESSAGE']}"
        try:
            is_patient = time.monotonic() >= self._no_wait_until
            self._socket.settimeout(READER_PATIENCE if is_patient else 0.0)
            self._socket.sendto(encoded(fields), self._path)
        except (TimeoutError, BlockingIOError):
            self._dropped += 1
            self._no_wait_until = time.monotonic() + NO_PATIENCE
        except OSError:
            self._otherwise.handle(record)
        else:
            self._dropped = 0

    def close(self) -> None:
        self._socket.close()
        super().close()


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
