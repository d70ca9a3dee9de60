"""Structured log records: a constant message and fields, one line each, as text or JSON.

What they show is bounded, and secrets are redacted, however they came to be there.
"""

import asyncio
import logging
import os
import select
import socket
import stat
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import orjson

from ccm.journal import NOT_READ, JournalHandler, Patience, field_name, is_journal
from ccm.printable import printable, printable_json
from ccm.redaction import CUT, bounded_text, redacted, safe_values

log = logging.getLogger(__name__)

LIBRARIES = ("aiohttp", "asyncio", "botocore", "kubernetes", "urllib3")
"""What they warn of (a retry, a pool, a slow callback) is for who looks for it."""

_UNCLEAR = frozenset(' "\n=')  # what makes the end of a value unclear
VALUE_LIMIT = 4000  # characters of a message or of a text in a field
NOTHING: tuple[object, ...] = ("", None, [], (), {}, frozenset())  # no field of a text
IGNORED_INTERVAL = 60.0  # seconds between two records of exceptions that no code can catch
KINDS_OF_ERRORS = 100  # of the loop, that are distinguished
TRACE_LINES = 40  # at the beginning and at the end of a traceback
_RESERVED = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _message(record: logging.LogRecord) -> str:
    return bounded_text(record.getMessage(), VALUE_LIMIT)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    found = vars(record).items()
    fields = {key: _bounded(value) for key, value in found if key not in _RESERVED}
    return fields | ({"trace": _trace(record.exc_info[1])} if record.exc_info else {})


def _bounded(value: Any) -> Any:
    """What is short stays as it is: the whole line is redacted in the end."""
    match value:
        case bool() | int() | float() | None:
            return value
        case str():
            return bounded_text(value, VALUE_LIMIT)
    return safe_values(value, VALUE_LIMIT)


def _trace(error: BaseException | None) -> str:
    """The traceback: of long texts the beginning, of many lines the first and the last."""
    lines = [bounded_text(line, VALUE_LIMIT) for line in traceback.format_exception(error)]
    if len(lines) > 2 * TRACE_LINES:
        lines = [*lines[:TRACE_LINES], f"  {CUT}\n", *lines[-TRACE_LINES:]]
    return "".join(lines).rstrip("\n")


class _Line(logging.Formatter):
    def __init__(self, process: str, as_json: bool) -> None:
        super().__init__()
        self._process, self._as_json = process, as_json

    def format(self, record: logging.LogRecord) -> str:
        stamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = _fields(record)
        if self._as_json:
            head = {"ts": stamp, "level": record.levelname.lower(), "process": self._process}
            texts = {"logger": record.name, "msg": _message(record), **fields}
            body = head | {key: _redacted_value(key, value) for key, value in texts.items()}
            try:
                return printable_json(body, orjson.OPT_NON_STR_KEYS, default=str)
            except orjson.JSONEncodeError:  # a surrogate or a huge number among the fields
                body = {key: ascii(value) for key, value in body.items()}
                return printable_json(body)
        return redacted(f"{stamp} {record.levelname[0]} {self._sentence(record, fields)}")

    def _sentence(self, record: logging.LogRecord, fields: dict[str, Any]) -> str:
        words = [self._process, _message(record)]
        return printable(
            " ".join(words + [f"{k}={_quoted(v)}" for k, v in fields.items() if v not in NOTHING])
        )

    def journal_fields(self, record: logging.LogRecord) -> dict[str, str]:
        """The record for systemd's journal, which notes level and time itself."""
        fields = _fields(record)
        reported = {"process": self._process, "logger": record.name, **fields}
        return {"MESSAGE": redacted(self._sentence(record, fields))} | {
            field_name(key): _redacted_value(key, printable(value))
            for key, value in reported.items()
        }


def _redacted_value(key: str, value: Any) -> Any:
    """A text is redacted by its name, too: as it would be in a line."""
    name = f"{key}="
    return redacted(f"{name}{value}").removeprefix(name) if isinstance(value, str) else value


def _quoted(value: object) -> str:
    text = _plain(value)
    return text if text and _UNCLEAR.isdisjoint(text) else repr(text)


def _plain(value: object) -> str:
    """As people and the field write it: `a,b` for a list, `a: b` for a mapping, `true`."""
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.3f}"
        case dict():
            return ", ".join(f"{key}: {_plain(each)}" for key, each in value.items())
        case list() | tuple() | set() | frozenset():
            return ",".join(map(_plain, value))
    return str(value)


class _PipeHandler(logging.Handler):
    """Writes to a pipe or socket whose reader may be stuck: then lines are dropped and counted.

    Others that share it still block; raises `OSError`.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._write: Callable[[bytes], int]
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            self._socket = socket.socket(fileno=os.dup(descriptor))
            self._pipe = self._socket.fileno()
            self._write = lambda line: self._socket.send(line, socket.MSG_DONTWAIT)
        else:
            self._pipe = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK)
            self._write = partial(os.write, self._pipe)
        self._dropped, self._patience = 0, Patience()

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{self.format(record)}\n".encode(errors="replace")
        if self._dropped:
            line = f"... {NOT_READ % self._dropped}\n".encode() + line
        try:
            while line and (self._takes_more(0.0) or self._patience.spend(self._takes_more)):
                line = line[self._write(line) :]
        except OSError:  # filled meanwhile, or without a reader
            pass
        self._dropped = self._dropped + 1 if line else 0

    def _takes_more(self, patience: float) -> bool:
        """Whether it does within so many seconds."""
        return bool(select.select([], [self._pipe], [], patience)[1])


@contextmanager
def performing(log: logging.Logger, message: str, **fields: object) -> Iterator[None]:
    """Log what the block has done to the world, and how long that took; nothing if it raises."""
    began = time.monotonic()
    yield
    log.info(message, extra=fields | seconds_since(began))


def seconds_since(began: float) -> dict[str, object]:
    """The field of a record that says how long something took; `began` is monotonic."""
    return {"seconds": round(time.monotonic() - began, 3)}


def set_up(process: str, format_name: str, verbosity: int) -> None:
    """Send the records of this process to standard error; call once, early in the process.

    Where that is systemd's journal, it gets their fields as fields.
    """
    line = _Line(process, format_name == "json")
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(line)
    with suppress(OSError, ValueError):  # as of a stream without a descriptor
        mode = os.fstat(sys.stderr.fileno()).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            handler = _PipeHandler(sys.stderr.fileno())
            handler.setFormatter(line)
    if format_name != "json" and is_journal(sys.stderr):
        handler = JournalHandler(line.journal_fields, otherwise=handler)
    # No line shows where in the code it comes from, and looking for that is a third of its cost.
    logging._srcfile = ""
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    report_ignored_exceptions()
    set_verbosity(verbosity)


def report_ignored_exceptions() -> None:
    """Log what no code can catch once in a while; Python writes each to standard error.

    Any client of the HTTPS port causes one, by a server name of TLS that is not ASCII.
    """
    no_record_until = 0.0

    def report(ignored: "sys.UnraisableHookArgs") -> None:
        nonlocal no_record_until
        if (now := time.monotonic()) >= no_record_until:
            no_record_until = now + IGNORED_INTERVAL
            fields = {"what": repr(ignored.object), "error": repr(ignored.exc_value)}
            log.warning("exception ignored", extra=fields)

    sys.unraisablehook = report


def report_loop_errors(loop: asyncio.AbstractEventLoop) -> None:
    """Log what no code catches of each kind once in a while; asyncio logs each, with a traceback.

    Any client of the HTTPS port causes one, by a URL that no parser takes.
    """
    silent_until: dict[str, float] = {}  # by message

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message, now = str(context.get("message")), time.monotonic()
        if now >= silent_until.get(message, 0.0):
            if len(silent_until) > KINDS_OF_ERRORS:
                silent_until.clear()
            silent_until[message] = now + IGNORED_INTERVAL
            loop.default_exception_handler(context)

    loop.set_exception_handler(report)


def set_verbosity(verbosity: int) -> None:
    """Log every decision at 4 and more, changes of state below, only what is wrong below 0."""
    level = logging.DEBUG if verbosity >= 4 else logging.INFO if verbosity >= 0 else logging.WARNING
    for name in ("ccm", "workers"):
        logging.getLogger(name).setLevel(level)
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING if verbosity >= 4 else logging.ERROR)
