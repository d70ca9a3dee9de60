"""One line a record, as text or JSON."""

import logging
import os
import socket
import subprocess
import sys
import threading

import orjson
import pytest

from ccm.journal import READER_PATIENCE
from ccm.log import LIBRARIES, _Line, _PipeHandler, set_verbosity
from ccm.redaction import redacted
from tests.support.deadlines import timeout

PAGE = 4096  # bytes of a pipe that are taken or given at once


def record(message: str, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("ccm.test", logging.WARNING, __file__, 1, message, (), None)
    made.__dict__.update(fields)
    made.created = 0.0
    return made


def test_a_text_record_is_one_line_with_its_fields() -> None:
    line = _Line("node-0", as_json=False).format(record("node gone", node="n1", seconds=1.23456))
    assert line == "1970-01-01T00:00:00.000+00:00 W node-0 node gone node=n1 seconds=1.235"


@pytest.mark.parametrize("odd", ["two words", 'a "quote"', "two\nlines", "a=b"])
def test_an_odd_value_is_quoted_and_stays_on_its_line(odd: str) -> None:
    line = _Line("node-0", as_json=False).format(record("said", what=odd))
    assert line.endswith(f"what={odd!r}")
    assert "\n" not in line


def test_a_text_record_has_no_words_for_nothing() -> None:
    empty: dict[str, object] = {"node": "", "calls": [], "of": {}, "why": None, "waits": ()}
    line = _Line("route", as_json=False).format(record("route deleted", **empty, count=0, up=False))
    assert line.endswith(" W route route deleted count=0 up=false")


def test_a_json_record_is_one_object() -> None:
    line = _Line("node-0", as_json=True).format(record("node gone", node="n1", of={"a": {1, 2}}))
    assert orjson.loads(line) == {
        "ts": "1970-01-01T00:00:00.000+00:00",
        "level": "warning",
        "process": "node-0",
        "logger": "ccm.test",
        "msg": "node gone",
        "node": "n1",
        "of": {"a": "{1, 2}"},
    }


def test_a_value_that_is_not_unicode_is_no_obstacle() -> None:
    assert _Line("node-0", as_json=True).format(record("read", path="\udc80"))


@pytest.mark.parametrize("as_json", [True, False])
def test_a_stack_trace_stays_on_its_line(as_json: bool) -> None:
    made = record("failed")
    try:
        raise ValueError("odd")
    except ValueError as error:
        made.exc_info = (ValueError, error, error.__traceback__)
    line = _Line("node-0", as_json).format(made)
    assert "\n" not in line
    assert "ValueError: odd" in line


@pytest.mark.parametrize(
    "line",
    [
        "Authorization: Bearer CANARY",
        "authorization=CANARY end",
        "{'Authorization': 'Bearer CANARY', 'x': 1}",
        '{"token":"CANARY","user":"u"}',
        'said="{\\"token\\": \\"CANARY\\"}"',
        "token = CANARY",
        "?api_key=CANARY&page=2",
        "aws_secret_access_key = CANARY",
        "password: CANARY, user: u",
        "http://user:CANARY@host/path",
        'password="CANARY of CANARY", user: u',
        "{'password': 'CANARY\\' and CANARY', 'x': 1}",
        "token=b'CANARY'",
        "'X-Auth-Token': ['CANARY', 'y']",
        "secretKey: CANARY",
        "SecretAccessKey=CANARY",
        "?X-Amz-Expires=60&X-Amz-Signature=CANARY&x=1",
        "blob?sv=2024&sig=CANARY%3D",
        "Authorization: AWS4-HMAC-SHA256 Credential=x/y, SignedHeaders=host, Signature=CANARY",
        "token: 0CANARY-0123456789",
        "token:CANARY",
        "bearer 0canary-CANARY",
        "Bearer abcdefghijklmnopqrstuvwxCANARY",
        "the bearer token 0CANARY-0123456789 was refused",
        "password: CANARY is wrong",
        "-----BEGIN RSA PRIVATE KEY-----\nCANARY\nCANARY\n-----END RSA PRIVATE KEY-----\n",
        "client-key-data: CANARY",
        "got eyJCANARY.eyJhbGci.c2ln from the server",
    ],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_what_looks_like_a_secret_is_redacted(line: str, as_json: bool) -> None:
    said = _Line("node-0", as_json).format(record("failed", error=line))
    assert "CANARY" not in said
    assert "[redacted]" in said


@pytest.mark.parametrize(
    "line",
    [
        "the token of route-controller is renewed",
        "no new token account=route-controller",
        "no new token: connection refused",
        "no new token: 401 Unauthorized",
        "no new token: serviceaccounts.example is forbidden",
        "invalid signature: digest",
        "the bearer token is not valid",
        "a bearer is refused",
        "[Global] password: is missing; give it",
        "secret: must be set",
        "next page token missing in the answer",
        "https://host:6443/api/v1/nodes?limit=500",
        "secretName=web-tls keyed=1",
    ],
)
def test_what_is_no_secret_stays(line: str) -> None:
    assert redacted(line) == line


def test_libraries_are_heard_from_errors_on() -> None:
    before = logging.getLogger("urllib3").level
    try:
        set_verbosity(0)
        pool = logging.getLogger("urllib3.connectionpool")
        assert not pool.isEnabledFor(logging.WARNING)
        assert pool.isEnabledFor(logging.ERROR)
        set_verbosity(4)
        assert pool.isEnabledFor(logging.WARNING)
    finally:
        for name in LIBRARIES:
            logging.getLogger(name).setLevel(before)
        for name in ("ccm", "workers"):
            logging.getLogger(name).setLevel(logging.NOTSET)


LOGS_A_LOT = """
import logging
from ccm.log import set_up
set_up("test", "text", 0)
for number in range(2_000):
    logging.getLogger("ccm").info("x" * 1_000)
"""


def test_a_reader_that_is_stuck_blocks_no_process() -> None:
    process = subprocess.Popen([sys.executable, "-c", LOGS_A_LOT], stderr=subprocess.PIPE)
    assert process.wait(timeout()) == 0
    assert process.stderr
    with process.stderr as lines:
        assert 10 < len(lines.readlines()) < 200


def test_a_reader_that_is_slow_holds_no_process_up_for_each_record() -> None:
    """It takes a page of the pipe now and then, for which each record would be waited."""
    reader, writer = os.pipe()
    heard, is_over = list[bytes](), threading.Event()

    def read_slowly() -> None:
        while not is_over.wait(READER_PATIENCE / 5):
            heard.append(os.read(reader, PAGE))

    sending, reading = _PipeHandler(writer), threading.Thread(target=read_slowly)
    reading.start()
    for _ in range(200):  # sixteen wait in the kernel
        sending.emit(record("x" * PAGE))
    is_over.set()
    reading.join()
    for file in (reader, writer):
        os.close(file)
    assert len(heard) < 50


def test_a_journal_that_is_stuck_blocks_no_process() -> None:
    """Standard error of a service is a socket of systemd's journal."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen([sys.executable, "-c", LOGS_A_LOT], stderr=theirs.fileno())
        theirs.close()
        try:
            assert process.wait(timeout()) == 0
        finally:
            process.kill()
        with ours.makefile("rb") as lines:
            assert 10 < len(lines.readlines()) < 1000
