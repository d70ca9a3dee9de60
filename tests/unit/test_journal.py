"""Records as systemd's journal gets them: each fact a field, and nothing in one makes another."""

import io
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ccm.journal import READER_PATIENCE, JournalHandler, field_name, is_journal
from ccm.log import _Line
from tests.support.deadlines import timeout
from tests.unit.test_log import record


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(tmp_path / "socket"))
        journal.setblocking(False)  # what was sent is there
        yield journal


class Kept(logging.Handler):
    """What comes to it."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def handler(journal: socket.socket, otherwise: logging.Handler) -> JournalHandler:
    line = _Line("node-0", as_json=False)
    return JournalHandler(line.journal_fields, otherwise, journal.getsockname())


def decoded(datagram: bytes) -> dict[str, str]:
    """The fields, read as the journal does."""
    fields = {}
    while datagram:
        name, datagram = datagram.split(b"\n", 1)
        size = int.from_bytes(datagram[:8], "little")
        fields[name.decode()] = datagram[8 : 8 + size].decode()
        assert datagram[8 + size : 9 + size] == b"\n"
        datagram = datagram[9 + size :]
    return fields


def test_a_journal_that_reads_nothing_blocks_no_process(journal: socket.socket) -> None:
    """Any user of the host may keep it busy, and the supervisor would renew no Lease meanwhile."""
    kept, began = Kept(), time.monotonic()
    sending = handler(journal, kept)
    for number in range(2_000):
        sending.emit(record("said", number=number))
        assert time.monotonic() - began < timeout()
    assert not kept.records
    with suppress(BlockingIOError):
        while True:
            journal.recv(1 << 16)
    sending.emit(record("heard"))
    sending.close()
    last = decoded(journal.recv(1 << 16))["MESSAGE"]
    assert last.endswith(" log lines dropped: they were not read; node-0 heard")


def test_a_journal_that_is_slow_holds_no_process_up_for_each_record(
    journal: socket.socket,
) -> None:
    """A user of the host may have it read a record now and then: each would be waited for."""
    heard, is_over = list[bytes](), threading.Event()

    def read_slowly() -> None:
        while not is_over.wait(READER_PATIENCE / 5):
            heard.append(journal.recv(1 << 16))

    sending, reading = handler(journal, Kept()), threading.Thread(target=read_slowly)
    reading.start()
    for _ in range(120):  # twenty or so wait in the kernel
        sending.emit(record("said", what="x" * 4000))
    is_over.set()
    reading.join()
    sending.close()
    assert len(heard) < 30


def test_each_field_of_a_record_is_one_of_the_journal(journal: socket.socket) -> None:
    sending = handler(journal, Kept())
    sending.emit(record("node gone", node="n1\nPRIORITY=0", **{"odd key": 1.5}, token="0CANARY"))
    sending.close()
    assert decoded(journal.recv(1 << 16)) == {
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "ccm-supervisor",
        "MESSAGE": r"node-0 node gone node='n1\nPRIORITY=0' odd key=1.500 token=[redacted]",
        "CCM_PROCESS": "node-0",
        "CCM_LOGGER": "ccm.test",
        "CCM_NODE": r"n1\nPRIORITY=0",
        "CCM_ODD_KEY": "1.5",
        "CCM_TOKEN": "[redacted]",
    }


def test_what_the_journal_does_not_take_is_a_line_as_ever(journal: socket.socket) -> None:
    kept = Kept()
    sending = handler(journal, kept)
    long = record("long", **{f"field_{number}": "x" * 4000 for number in range(2000)})
    sending.emit(long)
    os.unlink(journal.getsockname())
    sending.emit(record("nobody listens"))
    sending.close()
    assert [one.getMessage() for one in kept.records] == ["long", "nobody listens"]


def test_a_name_is_one_that_the_journal_takes() -> None:
    assert field_name("provider_id") == "CCM_PROVIDER_ID"
    assert field_name("x" * 99 + "=\n") == "CCM_" + "X" * 60


def test_systemd_says_what_is_its_journal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "stderr").open("w") as stream:
        info = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{info.st_dev}:{info.st_ino}")
        assert is_journal(stream)
    with (tmp_path / "other").open("w") as other:
        assert not is_journal(other)
    assert not is_journal(io.StringIO())
