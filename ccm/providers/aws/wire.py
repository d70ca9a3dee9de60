"""What comes over the wire is not trusted: here an answer has to be one, whole, and in time.

botocore reads anything that is XML as the answer to anything, an empty one, of any size, and limits
only how long it waits for the next bytes.
"""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from http.client import HTTPResponse
from io import BufferedReader, RawIOBase
from socket import SHUT_RDWR, socket
from threading import Timer
from typing import Any

from botocore.awsrequest import AWSHTTPConnection, AWSHTTPSConnection
from botocore.credentials import ProcessProvider
from botocore.exceptions import BotoCoreError, ClientError
from botocore.model import OperationModel
from botocore.parsers import ResponseParserError
from botocore.session import Session, get_session
from botocore.utils import parse_timestamp

from ccm.cloud.lookup import NOT_UNDERSTOOD, check_xml
from ccm.http import BODY_LIMIT
from ccm.limited_process import LimitedProcess
from ccm.model.objects import Json

_BEFORE_ROOT = rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*\?>\s*)?(?:<!--(?:(?!-->).)*-->\s*)*"
"""Matched in one way at most, however many comments there are."""
_HEAD = 4096  # bytes in which an answer has to begin, after comments
ELEMENTS = "CountOfElements"
MAX_TIME = 64  # characters
_SHOWN = 60  # characters of an odd answer in an error's text
UNREADABLE = (
    BotoCoreError,
    ClientError,
    ResponseParserError,
    *NOT_UNDERSTOOD,
    OSError,
    RuntimeError,  # for credentials that have ended when they come
)
"""What botocore raises, and lets out, for answers and for what gives credentials."""
SMALL_ANSWER = 64 << 10  # bytes of metadata, or of credentials: parsed they take many times that
GRACE = 1.0  # seconds after its limit, in which a thread notices by itself
_deadline: ContextVar[float] = ContextVar("deadline", default=float("inf"))
_most: ContextVar[int] = ContextVar("most", default=BODY_LIMIT)
_used: ContextVar[list[socket] | None] = ContextVar("used", default=None)  # sockets


def new_session() -> Session:
    """One whose clients, those for credentials as well, check what they read."""
    session = get_session()
    session.register("before-parse.sts", check_body)
    parsers = session.get_component("response_parser_factory")
    parsers.set_parser_defaults(timestamp_parser=read_time)
    return session


def check_body(
    operation_model: OperationModel,
    response_dict: Mapping[str, Any],
    customized_response_dict: dict[str, Any],
    **_: Any,
) -> None:
    """Raise `ResponseParserError` for what takes more memory than an answer may, and for a success
    that is no answer to this operation. How many `ELEMENTS` it has is said in the answer.

    For botocore's event `before-parse`.
    """
    body, name = response_dict["body"], operation_model.name
    try:
        elements = check_xml(body)
    except ValueError as why:
        raise ResponseParserError(f"this is not an answer to {name}: {why}") from why
    root = rb"%s<(?:\w+:)?%sResponse[\s/>]" % (_BEFORE_ROOT, name.encode())
    if response_dict["status_code"] < 300 and not re.match(root, body[:_HEAD], re.DOTALL):
        raise ResponseParserError(f"this is not an answer to {name}: {body[:_SHOWN]!r}")
    customized_response_dict[ELEMENTS] = elements


def check_members(operation_model: OperationModel, answer: Json) -> None:
    """Raise `ResponseParserError` for a read that lacks what it was made for.

    AWS lists nothing as an empty list; a list that is not there says nothing.
    """
    if not operation_model.name.startswith("Describe"):
        return
    for name, shape in operation_model.output_shape.members.items():
        if shape.type_name in ("list", "structure") and name not in answer:
            raise ResponseParserError(f"the answer to {operation_model.name} has no {name}")


def read_time(written: str) -> datetime:
    """A time in an answer; raises `ValueError`. botocore takes the square of its length for it."""
    if len(written) > MAX_TIME:
        raise ValueError(f"a time of {len(written)} characters")
    try:
        found: datetime = parse_timestamp(written)
        return found
    except (ArithmeticError, RuntimeError) as error:
        raise ValueError(str(error)) from error


@contextmanager
def time_limit(seconds: float, most: int = BODY_LIMIT) -> Iterator[None]:
    """Inside, this thread reads no answer for longer than this, however slowly it comes.

    And none of more than `most` bytes. Its connections are shut down soon after: OpenSSL goes
    through what is no data in one call, for as long as more of it comes.
    """
    used = list[socket]()
    end = Timer(seconds + GRACE, _shut_down, [used])
    end.daemon = True
    end.start()
    tokens = _deadline.set(time.monotonic() + seconds), _most.set(most), _used.set(used)
    try:
        yield
    finally:
        end.cancel()
        _deadline.reset(tokens[0])
        _most.reset(tokens[1])
        _used.reset(tokens[2])


def _shut_down(used: list[socket]) -> None:
    for each in used:
        with suppress(OSError):  # closed by either end
            socket.shutdown(each, SHUT_RDWR)  # TLS would go on in plain text


def limit_time() -> None:
    """Have botocore's connections, those for credentials as well, keep to `time_limit`.

    And what a profile's `credential_process` runs is a `LimitedProcess`.
    """
    AWSHTTPConnection.response_class = TimedResponse
    AWSHTTPSConnection.response_class = TimedResponse
    ProcessProvider.__init__.__defaults__ = (LimitedProcess,)


class TimedResponse(HTTPResponse):
    """A response that keeps to the `time_limit` in which it was asked for."""

    def __init__(self, sock: socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        if (used := _used.get()) is not None:
            used.append(sock)
        self.fp = BufferedReader(_TimedReader(sock, self.fp.detach()))


class _TimedReader(RawIOBase):
    """Reads from a socket within the `time_limit` that is set when it is made."""

    def __init__(self, sock: socket, raw: RawIOBase) -> None:
        self._sock, self._raw, self._deadline = sock, raw, _deadline.get()
        self._timeout, self._most = sock.gettimeout(), _most.get()
        self._left = self._most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer is not complete in time")
        if left != float("inf"):
            self._sock.settimeout(min(left, self._timeout or left))
        size = self._raw.readinto(buffer)
        self._left -= size or 0
        if self._left < 0:
            raise ValueError(f"the answer has more than {self._most} bytes")
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()
