"""Structured log records: a constant message and fields, one line each, as text or JSON.

Whatever looks like a secret is redacted, however it came to be there.
"""

import logging
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import orjson

from ccm.journal import JournalHandler, field_name, is_journal
from ccm.printable import printable, printable_json

LIBRARIES = ("aiohttp", "asyncio", "botocore", "kubernetes", "urllib3")
"""What they warn of (a retry, a pool, a slow callback) is for who looks for it."""

_UNCLEAR = frozenset(' "\n=')  # what makes the end of a value unclear
_RESERVED = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_NAMED = (
    r"(?:password|passwd|passphrase|secret(?:[-_]?key)?|authorization|api[-_]?key|access[-_]?key"
    r"|private[-_]?key|client[-_]?key[-_]data)"
)
_TOKEN = r"(?:token|signature|\bsig)"
_NAME_END = r"\\*[\"']?\s*"
_WORD = r"[^\s\"',;&})\]\\]+"
_NOT_A_VERB = r"(?!(?:is|are|was|has|must|cannot|may|should)\s)"
"""A name of a secret may be the subject of a sentence, as in `password: is missing`."""
_NOT_WORDS = r"(?!(?-i:[a-z]{1,15})(?:[\s,;:.]|$))"
_NAMES_HINTS = ("passw", "passphrase", "secret", "authorization", "key")
_TOKEN_HINTS = ("token", "sig")
_SECRETS = tuple(
    (hints, re.compile(f"(?i){pattern}"))
    for hints, pattern in (
        # In quotes of any depth of escaping, which may be in a list: up to the same quote.
        (
            (*_NAMES_HINTS, *_TOKEN_HINTS),
            rf"((?:{_NAMED}|{_TOKEN}){_NAME_END}[:=]\s*[\[(]*b?(\\*[\"'])).+?(?=(?<!\\)\2|$)",
        ),
        (
            _NAMES_HINTS,
            rf"({_NAMED}{_NAME_END}[:=]\s*{_NOT_A_VERB}(?:(?:bearer|basic|aws4-hmac-sha256)\s+)?){_WORD}",
        ),
        # "token: " goes before a reason as well; a token is longer than its words, and has digits.
        (
            _TOKEN_HINTS,
            rf"({_TOKEN}{_NAME_END}(?:=\s*|:(?!\s)|:\s+(?=\S*\d)(?=\S{{16}}))){_WORD}",
        ),
        (("bearer",), rf"(\bbearer\s+(?:token\s+)?){_NOT_WORDS}[^\s\"',;\\]+"),
        (("-----begin",), r"(-----begin [a-z ]*private key-----).+?(?=-----end|$)"),
        (("eyj",), r"()\beyJ[\w-]+\.[\w-]+\.[\w-]+"),  # a JSON web token, wherever it stands
        (("://",), r"(://[^/\s:@]+:)[^@\s/]+(?=@)"),  # the password in a URL
    )
)
"""Each with the words, in small letters, of which a line has one; most lines have none."""


def redacted(line: str) -> str:
    """The line without what looks like a secret: named as one, a bearer, a key, or in a URL."""
    has = line.lower().__contains__
    for hints, secret in _SECRETS:
        if any(map(has, hints)):
            line = secret.sub(r"\1[redacted]", line)
    return line


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _RESERVED}


class _Line(logging.Formatter):
    def __init__(self, process: str, as_json: bool) -> None:
        super().__init__()
        self._process, self._as_json = process, as_json

    def format(self, record: logging.LogRecord) -> str:
        return redacted(self._line(record))

    def _line(self, record: logging.LogRecord) -> str:
        stamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = _fields(record)
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        if self._as_json:
            head = {"ts": stamp, "level": record.levelname.lower(), "process": self._process}
            body = {**head, "logger": record.name, "msg": record.getMessage(), **fields}
            try:
                return printable_json(body, orjson.OPT_NON_STR_KEYS, default=str)
            except orjson.JSONEncodeError:  # a surrogate or a huge number among the fields
                body = {key: ascii(value) for key, value in body.items()}
                return printable_json(body)
        return f"{stamp} {record.levelname[0]} {self._sentence(record, fields)}"

    def _sentence(self, record: logging.LogRecord, fields: dict[str, Any]) -> str:
        words = [self._process, record.getMessage()]
        return printable(" ".join(words + [f"{k}={_quoted(v)}" for k, v in fields.items()]))

    def journal_fields(self, record: logging.LogRecord) -> dict[str, str]:
        """The record for systemd's journal, which notes level and time itself."""
        fields = _fields(record)
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        told = {"process": self._process, "logger": record.name, **fields}
        return {"MESSAGE": redacted(self._sentence(record, fields))} | {
            field_name(key): _redacted_value(key, value) for key, value in told.items()
        }


def _redacted_value(key: str, value: object) -> str:
    """By its name, too: as it would be in a line."""
    name = f"{key}="
    line = redacted(f"{name}{printable(value)}")
    return line.removeprefix(name)


def _quoted(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return text if text and _UNCLEAR.isdisjoint(text) else repr(text)


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
    if format_name != "json" and is_journal(sys.stderr):
        handler = JournalHandler(line.journal_fields, otherwise=handler)
    # No line tells where in the code it comes from, and looking for that is a third of its cost.
    logging._srcfile = ""
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    set_verbosity(verbosity)


def set_verbosity(verbosity: int) -> None:
    """Log every decision at 4 and more, changes of state below, only what is wrong below 0."""
    level = logging.DEBUG if verbosity >= 4 else logging.INFO if verbosity >= 0 else logging.WARNING
    for name in ("ccm", "workers"):
        logging.getLogger(name).setLevel(level)
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING if verbosity >= 4 else logging.ERROR)
