"""Requests to the Kubernetes API as raw JSON: a deadline on each, few in flight, typed failures."""

import asyncio
import random
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

import orjson
from aiohappyeyeballs import AddrInfoType

from ccm import metrics
from ccm.background import Deadlines
from ccm.counters import Counters
from ccm.errors import AnswerTooLarge, KubernetesError, NotLeading, Outdated, Unreachable
from ccm.http import BODY_LIMIT, BodyTooLarge, HttpConnection, HttpResponse, request_target
from ccm.http_client import HttpClient, RequestHeaders
from ccm.model.objects import Json, mapping, text
from ccm.tls import Server

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_JSON = "application/json"
METADATA = "PartialObjectMetadata"
METADATA_ONLY = f"{_JSON};as={METADATA};g=meta.k8s.io;v=v1,{_JSON}"
"""What is accepted of an object's kind in answer to a write, of which only the version is news."""
MAX_ATTEMPTS = 5  # of a request that is answered with 429
OF_ANY_KIND = ("", METADATA, "TokenRequest")
"""What says nothing of the kind that it is about."""
MAX_NAME = 512  # characters of another object's name in an error
LONGEST_PAUSE = 60.0  # seconds for which a 429 is obeyed, whatever its Retry-After says
FIELDS = b'"fieldsV1":{'  # begins managed fields; in a text its quotes would be escaped
_TEXT = rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)'
_TOKENS = re.compile(rb"(?:%b:\{\},?)+|%b|[{}]" % (_TEXT, _TEXT), re.DOTALL)
"""What braces are counted by: empty fields, as many as there are, texts, and braces."""


Check = Callable[[], None]
"""What prevents a write by raising `Outdated`."""

TokenFunc = Callable[[], Awaitable[str]]
"""Gives the bearer token of the next request; empty when there is none to send."""


async def no_token() -> str:
    """For a client that a certificate authenticates, or nothing."""
    return ""


async def keep_credentials() -> None:
    """For credentials that are not read from anywhere."""


@dataclass(frozen=True, slots=True)
class RestConfig:
    """The API server, and who we are to it.

    `renew` is called when the API server refuses the credentials (401): it reads them again, and
    returns the server with the files of now, if that is known.
    """

    server: Server
    bearer: TokenFunc = no_token
    renew: Callable[[], Awaitable[Server | None]] = keep_credentials


class WorkerToken:
    """The token of a worker, which waits until its supervisor has handed one over.

    An empty one will do where a client certificate is used. `on_refused` is called once for each
    token that the API server does not accept.
    """

    def __init__(self, on_refused: Callable[[], object]) -> None:
        self._on_refused = on_refused
        self._token, self._refused = "", ""
        self._is_set = asyncio.Event()

    def set(self, token: str) -> None:
        """Use this token from the next request on."""
        self._token = token
        self._is_set.set()

    async def bearer(self) -> str:
        """The token, as soon as there is one (a `TokenFunc`)."""
        await self._is_set.wait()
        return self._token

    def refused(self) -> None:
        """The API server answered 401."""
        if self._refused != self._token:
            self._refused = self._token
            self._on_refused()


class RateLimit:
    """A token bucket: `per_second` requests in the long run, `burst` at once (--kube-api-qps)."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._gap = 1 / per_second
        self._slack = max(burst, 1) * self._gap
        self._next = 0.0

    async def wait(self) -> None:
        now = asyncio.get_running_loop().time()
        self._next = max(self._next, now - self._slack) + self._gap
        await asyncio.sleep(max(self._next - now, 0.0))


@dataclass(frozen=True, slots=True)
class Fence:
    """What keeps a write from taking effect when it no longer should.

    `before_write` is called on the open connection when a write is about to leave, also for a
    retry; what it raises prevents the write. What the API server has not acknowledged after
    `delivery` seconds, the kernel gives up, even when this process has ended: otherwise it would
    deliver it minutes later, when a broken network works again.
    """

    before_write: Callable[[], None] = lambda: None
    delivery: float = 10.0

    def socket_for(self, address: AddrInfoType) -> socket.socket:
        """A socket for a connection to `address`."""
        family, kind, protocol, *_ = address
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(self.delivery * 1000))
        return made


class Kube:
    """One process's connection to the API server.

    Raises `KubernetesError` when the server answered with an error and `Unreachable` when there is
    no usable answer. A 429 is obeyed, for `longest_pause` seconds at most, and retried within the
    deadline: it was not executed.
    """

    def __init__(
        self,
        config: RestConfig,
        user_agent: str,
        in_flight: int = 32,
        rate: RateLimit | None = None,
        fence: Fence = Fence(),
        max_attempts: int = MAX_ATTEMPTS,
        longest_pause: float = LONGEST_PAUSE,
    ) -> None:
        self.config, self._longest_pause = config, longest_pause
        self._agent = user_agent
        self._slots = asyncio.Semaphore(in_flight)
        self._rate, self._fence, self._max_attempts = rate, fence, max_attempts
        self._throttled_until, self._body_limit = 0.0, BODY_LIMIT
        self._deadlines = Deadlines()
        self._http = HttpClient(config.server, fence.socket_for)
        self.writes = self.writes_under_way = 0
        self.counters = Counters()
        self.server_date = ""  # header of the last answer: the API server's clock
        self.body_size = 0  # bytes of the last answer
        self.on_unauthorized: Callable[[], None] = lambda: None  # the server answered 401

    async def close(self) -> None:
        await self._http.close()

    async def connect(self) -> None:
        """Open a connection before there is something to send; those that follow are cheaper.

        A failure is left to the request that comes.
        """
        with suppress(OSError, ValueError):
            await self._http.connect()

    def lane(self) -> "Kube":
        """The same client for one more request at a time, with pauses and a rate of its own.

        What is slowed down (429) or waits in a lane delays no others; closing is the owner's.
        """
        lane = copy(self)
        lane._slots, lane._rate = asyncio.Semaphore(1), copy(self._rate)
        lane.writes = lane.writes_under_way = 0
        return lane

    def up_to(self, body_limit: int) -> "Kube":
        """The same client, for answers of at most so many bytes: `AnswerTooLarge` for others."""
        bounded = copy(self)
        bounded._body_limit = body_limit
        return bounded

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Json:
        return await self.request("GET", path, params=params)

    async def post(self, path: str, body: Json, timeout: float = 30.0) -> Json:
        return await self.request("POST", path, body, timeout=timeout)

    async def put(self, path: str, body: Json, timeout: float = 30.0) -> Json:
        return await self.request("PUT", path, body, timeout=timeout)

    async def patch(
        self, path: str, kind: str, body: Any, timeout: float = 30.0, accept: str = _JSON
    ) -> Json:
        return await self.request(
            "PATCH", path, body, content_type=kind, timeout=timeout, accept=accept
        )

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        timeout: float = 30.0,
        check: Check = lambda: None,
    ) -> Json:
        """The decoded answer to one request, within `timeout` seconds, waiting included.

        `check` is called when a write is about to leave; `Outdated` from it prevents the write.
        """
        data = b"" if body is None else orjson.dumps(body)
        try:
            with self._deadlines.within(timeout):
                async with self._slots:
                    headers = await self._headers(content_type if data else "", accept)
                    target = request_target(path, params)
                    raw = await self._send_with_retries(method, target, headers, data, check)
        except TimeoutError as error:
            raise Unreachable(f"{method} {path}: no answer within {timeout:g} s") from error
        except BodyTooLarge as error:
            raise AnswerTooLarge(f"{method} {path}: {error}") from error
        except (OSError, ValueError) as error:  # also of an invalid token
            raise Unreachable(f"{method} {path}: {_short(error)}") from error
        answer = _decoded(raw, f"{method} {path}")
        if accept == _JSON and text(answer.get("kind")).startswith(METADATA):
            raise Unreachable(f"{method} {path}: the answer is the metadata alone")
        return answer

    async def _send_with_retries(
        self, method: str, target: str, headers: RequestHeaders, data: bytes, check: Check
    ) -> bytes:
        for attempt in range(1, self._max_attempts + 1):
            if self._rate:
                await self._rate.wait()
            if (pause := self._throttled_until - time.monotonic()) > 0:
                await asyncio.sleep(pause)
            answer = await self._send(method, target, headers, data, check)
            if answer.status < 300:  # a redirection is not followed, and no answer
                return answer.body
            error = _failure(answer, target)
            if error.status == 401:
                self.on_unauthorized()
                self._http.authenticate_again(await self.config.renew() or self.config.server)
            if error.status != 429 or attempt == self._max_attempts:
                raise error
            wait = min(error.retry_after or 1.0, self._longest_pause) * random.uniform(1.0, 1.2)
            self._throttled_until = max(self._throttled_until, time.monotonic() + wait)
        raise AssertionError("the last attempt returns or raises")

    async def _send(
        self, method: str, target: str, headers: RequestHeaders, data: bytes, check: Check
    ) -> HttpResponse:
        """One request and its complete response, counted."""
        began, code, is_read = time.monotonic(), "<error>", method == "GET"
        self.writes_under_way += not is_read
        try:
            before_send = (lambda: None) if is_read else partial(self._before_write, check)
            answer = await self._http.request(
                method, target, headers, data, is_read, before_send, self._body_limit
            )
            code = str(answer.status)
            self.server_date = answer.header("Date")
            self.body_size = len(answer.body)
            return answer
        except (NotLeading, Outdated):
            code = ""  # nothing was sent
            raise
        except ssl.SSLCertVerificationError:  # perhaps its authority is another by now
            self._http.read_certificates(self.config.server)
            raise
        finally:
            self.writes_under_way -= not is_read
            if code:
                seconds = time.monotonic() - began
                self.counters.count(metrics.API_REQUESTS, code, method)
                self.counters.observe(metrics.API_REQUEST_SECONDS, method, seconds=seconds)

    def _before_write(self, check: Check) -> None:
        check()
        self._fence.before_write()
        self.writes += 1

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], begins_within: float
    ) -> AsyncIterator[HttpConnection]:
        """A response to read from, which must begin within `begins_within` seconds.

        Reading raises `OSError` when it breaks, as `Unreachable` at the end of the block.
        """
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(begins_within):
                    headers = await self._headers("")
                    opened = self._http.stream(request_target(path, params), headers)
                    head, content = await stack.enter_async_context(opened)
                    self.counters.count(metrics.API_REQUESTS, str(head.status), "GET")
                    if head.status >= 300:
                        raise _failure(await content.response(), path)
                yield content
        except TimeoutError as error:
            raise Unreachable(f"GET {path}: no answer within {begins_within:g} s") from error
        except (OSError, ValueError) as error:
            raise Unreachable(f"GET {path}: {_short(error)}") from error

    async def _headers(self, content_type: str, accept: str = _JSON) -> RequestHeaders:
        headers = [("User-Agent", self._agent), ("Accept", accept)]
        if token := await self.config.bearer():
            headers.append(("Authorization", f"Bearer {token}"))
        if content_type:
            headers.append(("Content-Type", content_type))
        return headers


def about(path: str, answer: Json) -> Json:
    """The answer, when it is the object at `path`; a proxy may mix up whose answer is whose.

    Raises `Unreachable` for another one, which is no proof of a write either.
    """
    *_, plural, name = ["", *path.removesuffix("/status").split("/")]
    is_namespace, rest = plural == "namespaces", path.partition("/namespaces/")[2]
    namespace = "" if is_namespace else rest.partition("/")[0]
    kind, meta = text(answer.get("kind")), mapping(answer.get("metadata"))
    found = text(meta.get("namespace")), text(meta.get("name"))
    if found != (unquote(namespace), unquote(name)) or not is_one_of(plural, kind):
        other = f"{kind} {'/'.join(found).lstrip('/')}".strip()[:MAX_NAME]
        raise Unreachable(f"{path}: the answer is about another object: {other!r}")
    return answer


def is_one_of(plural: str, kind: str) -> bool:
    """Whether an object of this kind is one of `plural`, as a `Service` is one of `services`.

    A Service, its Endpoints and its Ingress often have one name.
    """
    singular = kind.lower()
    is_like = plural.startswith(singular[:-1]) and len(plural) <= len(singular) + 2  # `policies`
    return is_like or kind in OF_ANY_KIND


def _failure(answer: HttpResponse, target: str) -> KubernetesError:
    raw = answer.body
    try:
        status = orjson.loads(raw)
        reason, message = str(status.get("reason", "")), str(status.get("message", ""))
        if answer.status == 404 and not _is_about(target, mapping(status.get("details"))):
            reason = "of another object"
    except (orjson.JSONDecodeError, AttributeError):
        reason, message = answer.reason, raw[:200].decode(errors="replace").strip()
    after = answer.header("Retry-After")
    retry_after = float(after) if after.isascii() and after.isdigit() else None
    return KubernetesError(answer.status, reason, message, retry_after)


def _is_about(target: str, details: Mapping[str, Any]) -> bool:
    """Whether an error that names an object names one that the path has."""
    path = unquote(target.partition("?")[0]).split("/")
    return all(text(details.get(name)) in ("", *path) for name in ("kind", "name"))


def decode(raw: bytes) -> Any:
    """What the API server sent; raises `orjson.JSONDecodeError` for what is not JSON.

    Who may write an object may give it managed fields that Go reads and orjson does not: nested too
    deep, or not UTF-8. They would hide a whole list: where it cannot be read, none has any.
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return orjson.loads(_without_fields(raw))


def _without_fields(raw: bytes) -> bytes:
    """The same JSON with empty managed fields."""
    parts, rest = list[bytes](), 0
    while (at := raw.find(FIELDS, rest)) >= 0:
        begin = at + len(FIELDS) - 1
        parts += raw[rest:begin], b"{}"
        depth, rest = 0, len(raw)
        for token in _TOKENS.finditer(raw, begin):
            depth += (token[0] == b"{") - (token[0] == b"}")
            if not depth:
                rest = token.end()
                break
    return b"".join([*parts, raw[rest:]])


def _decoded(raw: bytes, what: str) -> Json:
    try:
        decoded = decode(raw)
    except orjson.JSONDecodeError as error:
        raise Unreachable(f"{what}: the answer is not JSON") from error
    if not isinstance(decoded, dict):
        raise Unreachable(f"{what}: the answer is not a JSON object")
    return decoded


def _short(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
