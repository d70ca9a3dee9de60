"""A proxy between botocore and the emulator: a log of the calls, and the faults that moto lacks.

Every fault in here is *injected*: what AWS would answer, by its documentation.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.support.deadlines import timeout

CLIENTS = {"2012-06-01": "elb", "2015-12-01": "elbv2", "2011-06-15": "sts"}
ERROR = """<?xml version="1.0"?><Response><Errors><Error><Code>{code}</Code>\
<Message>{message}</Message></Error></Errors><RequestID>r</RequestID></Response>"""
QUERY_ERROR = """<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code>\
<Message>{message}</Message></Error><RequestId>r</RequestId></ErrorResponse>"""


@dataclass(frozen=True, slots=True)
class Request:
    """One call as botocore sent it."""

    client: str
    operation: str
    parameters: dict[str, str]
    user_agent: str
    at: float = field(default_factory=time.monotonic)

    @property
    def name(self) -> str:
        return f"{self.client}:{self.operation}"

    @property
    def is_write(self) -> bool:
        return not self.operation.startswith("Describe")


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error instead of the call."""

    status: int
    code: str
    message: str = "injected"


@dataclass(frozen=True, slots=True)
class Reply:
    """A success with this body, for a call that moto does not know."""

    body: str


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection breaks before the call."""


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer until the proxy closes."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """A success whose body is not what was asked for."""


@dataclass(frozen=True, slots=True)
class Drip:
    """An answer that comes a byte at a time and never ends; the head as well if asked for."""

    is_head: bool = False
    interval: float = 0.1


@dataclass(frozen=True, slots=True)
class Flood:
    """A success whose body has so many bytes."""

    size: int = 200 << 20


Fault = Refusal | Reply | Reset | Silence | Garbage | Drip | Flood


def throttling(request: Request) -> Refusal:
    """How each service says that there were too many calls."""
    if request.client == "ec2":
        return Refusal(503, "RequestLimitExceeded", "Request limit exceeded.")
    return Refusal(400, "Throttling", "Rate exceeded")


class Limit:
    """A fault rule: `per_second` calls for the whole account, `burst` at once, then throttling."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._rate, self._burst = per_second, burst
        self._tokens, self._at = burst, time.monotonic()
        self._lock = Lock()
        self.throttled = 0

    def __call__(self, request: Request) -> Fault | None:
        with self._lock:
            now = time.monotonic()
            self._tokens = min(self._burst, self._tokens + self._rate * (now - self._at))
            self._at = now
            if self._tokens >= 1:
                self._tokens -= 1
                return None
            self.throttled += 1
            return throttling(request)


class AccountLimits:
    """A fault rule: the request limits that AWS documents for an account in one region.

    EC2 has a bucket for each action, and a smaller one for reads without filter and pages; Elastic
    Load Balancing one for all calls of a version, and inside of that one for registering targets.
    """

    def __init__(self) -> None:
        self._limits: dict[str, Limit] = {}

    @property
    def throttled(self) -> int:
        return sum(limit.throttled for limit in self._limits.values())

    def __call__(self, request: Request) -> Fault | None:
        return next((fault for limit in self._of(request) if (fault := limit(request))), None)

    def _of(self, request: Request) -> Iterator[Limit]:
        if request.client == "ec2":
            narrows = ("Filter.1.Name", "MaxResults")
            if request.is_write:
                yield self._limit(request.name, 5.0, 50.0)
            elif any(name in request.parameters for name in narrows):
                yield self._limit(request.name, 20.0, 100.0)
            else:
                yield self._limit(f"{request.name} of all", 10.0, 50.0)
        elif request.client != "sts":
            if request.operation in ("RegisterTargets", "DeregisterTargets"):
                yield self._limit("elbv2 targets", 4.0, 20.0)
            yield self._limit(request.client, 10.0, 40.0)

    def _limit(self, name: str, per_second: float, burst: float) -> Limit:
        return self._limits.setdefault(name, Limit(per_second, burst))


class Proxy:
    """Forwards to the emulator; `rule` may answer a call with a fault instead."""

    def __init__(self, target: str) -> None:
        self.requests: list[Request] = []
        self.rule: Callable[[Request], Fault | None] = lambda request: None
        self.rewrite: Callable[[Request, bytes], bytes] = lambda request, answer: answer
        self.latency = 0.0  # seconds that each call takes besides the emulator's own
        self.unanswered: dict[int, Request] = {}
        self.closing = Event()
        self._lock = Lock()
        address = urlsplit(target)
        self.target = (address.hostname or "", address.port or 80)
        self._server = _Server(("127.0.0.1", 0), self)
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def reset(self) -> None:
        """No faults, and nothing called."""
        self.rule = lambda request: None
        self.rewrite = lambda request, answer: answer
        self.requests = []

    @contextmanager
    def fault(self, operation: str, fault: Fault) -> Any:
        """Answer every call of this operation so, until the end of the block."""
        before = self.rule
        self.rule = lambda r: fault if operation in (r.operation, r.name) else before(r)
        try:
            yield
        finally:
            self.rule = before

    @contextmanager
    def holding(self, operation: str) -> Iterator[Event]:
        """Keep the calls of this operation waiting in the block; the event is set once one does."""
        before, arrived, ended = self.rule, Event(), Event()

        def hold(request: Request) -> Fault | None:
            if operation in (request.operation, request.name):
                arrived.set()
                ended.wait(timeout())
            return before(request)

        self.rule = hold
        try:
            yield arrived
        finally:
            self.rule = before
            ended.set()

    def counted(self) -> Counter[str]:
        """How often each call was made."""
        return Counter(request.name for request in self.requests)

    def writes(self) -> list[str]:
        return [request.name for request in self.requests if request.is_write]

    @contextmanager
    def answering(self, request: Request) -> Iterator[None]:
        """Have the call in `unanswered` until the end of the block."""
        self.unanswered[id(request)] = request
        try:
            yield
        finally:
            del self.unanswered[id(request)]

    def take(self, request: Request) -> Fault | None:
        time.sleep(self.latency)
        with self._lock:
            self.requests.append(request)
        return self.rule(request)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], proxy: Proxy) -> None:
        self.proxy = proxy
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer's body waits 40 ms for its head's receipt
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.upstream = HTTPConnection(*self.server.proxy.target, timeout=timeout())

    def finish(self) -> None:
        self.upstream.close()
        super().finish()

    def log_message(self, *_: object) -> None:
        return

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = _read(body.decode(), self.headers.get("User-Agent", ""))
        with self.server.proxy.answering(request):
            self._answer(request, body)

    def _answer(self, request: Request, body: bytes) -> None:
        proxy = self.server.proxy
        fault = proxy.take(request)
        match fault:
            case Refusal(status, code, message):
                form = ERROR if request.client == "ec2" else QUERY_ERROR
                self._send(status, form.format(code=code, message=message).encode())
            case Reply(body=text):
                self._send(200, text.encode())
            case Reset():
                self.close_connection = True
            case Silence():
                proxy.closing.wait()
                self.close_connection = True
            case Drip(is_head, interval):
                self._drip(is_head, interval)
            case Flood(size):
                self._flood(size)
            case Garbage():
                self._send(200, b"<html>not what was asked for")
            case None:
                status, answer = self._forward(body)
                self._send(status, proxy.rewrite(request, answer))

    def _forward(self, body: bytes) -> tuple[int, bytes]:
        headers = {key: value for key, value in self.headers.items() if key.lower() != "host"}
        for attempt in (1, 2):
            try:
                self.upstream.request("POST", self.path, body, headers)
                answer = self.upstream.getresponse()
                return answer.status, answer.read()
            except (HTTPException, OSError):
                self.upstream.close()
                if attempt == 2:
                    raise
        raise AssertionError

    def _drip(self, is_head: bool, interval: float) -> None:
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
        self.wfile.write(b"X-Slow: " if is_head else b"Content-Length: 10000\r\n\r\n")
        while not self.server.proxy.closing.wait(interval):
            self.wfile.write(b" ")

    def _flood(self, size: int) -> None:
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        with suppress(OSError):  # the client has enough
            for _ in range(size >> 20):
                self.wfile.write(b" " * (1 << 20))

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _read(body: str, user_agent: str) -> Request:
    parameters = {key: values[0] for key, values in parse_qs(body).items()}
    client = CLIENTS.get(parameters.get("Version", ""), "ec2")
    return Request(client, parameters.get("Action", ""), parameters, user_agent)
