"""The way to a cloud that speaks JSON over HTTP: one request at a time through the gate.

What such clouds have in common is in here, once: who asks, trust and credentials that are read
again when their files change, reads that are repeated on a connection that was closed, what a
status means for the caller, and pages. What is particular to a cloud is in its subclass of
`JsonApi`.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlencode

import orjson
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from ccm import __version__
from ccm.background import start_task
from ccm.cloud.credentials import Credentials, RenewedToken
from ccm.cloud.failures import Unsent, by_status, what_broke
from ccm.cloud.interface import Gate
from ccm.cloud.lookup import (
    BYTES_A_VALUE,
    MAX_PAGES,
    MAX_PLACES,
    MAX_RECORDS,
    MAX_VALUES,
    NOT_UNDERSTOOD,
    OBJECT_WEIGHT,
    verify_count,
)
from ccm.directories import read_bounded
from ccm.errors import CloudError, Unanswered
from ccm.http import BodyTooLarge, HttpResponse
from ccm.http_client import IDLE_TIMEOUT, HttpClient
from ccm.model.objects import mapping, text
from ccm.redaction import safe_text
from ccm.tls import Server

log = logging.getLogger(__name__)

MAX_SERVERS = 32  # to which there are connections
MAX_NEXT = 16 << 10  # characters by which a next page is named
JSON = "application/json"
CONTAINERS = {dict, list}  # of JSON as it is read


@dataclass(slots=True)
class Measure:
    """How many values of JSON an answer has, and all pages of a list together."""

    values: int = 0

    def add(self, operation: str, body: bytes) -> None:
        """Raises `CloudError`, by a `BodyTooLarge`, for more than memory or a turn has room for:
        three bytes may be a hundred, and a thousand texts a gigabyte.
        """
        counted = OBJECT_WEIGHT * body.count(b"{") + body.count(b"[") + body.count(b",")
        self.values += max(counted, len(body) // BYTES_A_VALUE)
        if self.values > MAX_VALUES:
            why = f"more than {MAX_VALUES} values"
        elif max(body.count(b"["), body.count(b":")) > MAX_PLACES:
            why = f"more than {MAX_PLACES} lists or keys"
        else:
            return
        raise CloudError(f"{operation}: the answer has {why}") from BodyTooLarge(why)


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `operation` names it in metrics and errors, `budget` is its class of calls.

    `body` is JSON, or bytes of another type that `headers` name. `url` is the server's, where there
    are several. A POST that `changes_nothing`, as a login does, is a read like each GET.
    """

    operation: str
    budget: str
    method: str
    target: str
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    url: str = ""
    changes_nothing: bool = False
    measure: Measure = field(default_factory=Measure, compare=False, repr=False)

    @property
    def is_write(self) -> bool:
        return self.method not in ("GET", "HEAD") and not self.changes_nothing

    @property
    def content(self) -> bytes:
        """The body as it is sent."""
        if self.body is None or isinstance(self.body, bytes):
            return self.body or b""
        return orjson.dumps(self.body)


class JsonApi:
    """Requests to one cloud, each once. `name` says in errors which one, where there are several.

    Each shows the `credentials`, as `authorization` has them.

    Raises `Unauthenticated` (401), `Denied` (403), `Throttled` (429), `NotFound`, `Conflict`,
    `Refused` (other 4xx), `Unsent`, `Unanswered`, and `CloudError` for everything else: 5xx, an
    answer of another form.
    """

    cloud: ClassVar[str]
    """Whose answers these are, in errors."""
    ca_keys: ClassVar[str]
    """The keys of the configuration that say which certificates are trusted."""

    def __init__(
        self,
        gate: Gate,
        caller: str,
        *servers: Server,
        credentials: Credentials[Any] | RenewedToken[Any] | None = None,
        name: str = "",
        timeout: float | None = None,
        idle_timeout: float = IDLE_TIMEOUT,
    ) -> None:
        self.gate, self.name, self._shown = gate, name, credentials
        self._timeout, self._idle_timeout = timeout, idle_timeout
        self._usual = {"User-Agent": f"ccm-supervisor/{__version__} {caller}", "Accept": JSON}
        self._servers = {server.url: server for server in servers}
        self._clients: dict[Server, ReloadingClient] = {}
        self._closing = set[asyncio.Task[None]]()

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.close()

    async def request(self, request: Request) -> Any:
        """What the cloud answers, as `result` reads it."""
        result, _ = await self.exchange(request)
        return result

    async def exchange(self, request: Request) -> tuple[Any, HttpResponse]:
        """The same with the response that it came in, for headers."""
        if self._shown is None:
            return await self.attempt(request)

        async def show(credentials: Any) -> tuple[Any, HttpResponse]:
            headers = {**self.authorization(credentials), **request.headers}
            return await self.attempt(replace(request, headers=headers))

        return await self._shown.use(show)

    async def attempt(self, request: Request) -> tuple[Any, HttpResponse]:
        """One request as it is."""

        async def send() -> tuple[Any, HttpResponse]:
            response = await self.send(request)
            with self._understanding(request):
                self.observe(response)
                request.measure.add(self.named(request.operation), response.body)
                return self.read(request.operation, response), response

        return await self.gate.call(
            request.operation, request.budget, send, is_write=request.is_write
        )

    async def read_pages(
        self, request: Request, next_page: Callable[[Any], Mapping[str, Any]]
    ) -> AsyncIterator[Any]:
        """The answers to a list; `next_page` says in what the query for the next one differs.

        What it gives may be texts or numbers; nothing means that there is no other page.

        So an address in an answer is never followed, and no credentials go to another host.
        """
        seen, request = set[str](), replace(request, measure=Measure())
        while request.target not in seen:
            if len(seen) == MAX_PAGES:
                raise CloudError(f"{request.operation}: more than {MAX_PAGES} pages")
            seen.add(request.target)
            yield (page := await self.request(request))
            with self._understanding(request):
                if not (changes := next_page(page)):
                    return
                request = replace(request, target=_changed(request.target, changes))
        raise CloudError(f"the pages of {request.operation} go round in a circle")

    async def send(self, request: Request) -> HttpResponse:
        """The response to a request that the gate let through, whatever its status."""
        usual = self._usual if request.method == "GET" else {**self._usual, "Content-Type": JSON}
        headers = {**usual, **request.headers}
        leaving = list[str]()  # has an entry once it left
        try:
            async with asyncio.timeout(self._timeout):
                client = await self.client(request.url)
                response = await client.request(
                    request.method,
                    request.target,
                    headers.items(),
                    request.content,
                    may_retry=not request.is_write,
                    before_send=lambda: leaving.append(request.operation),
                )
        except (OSError, ValueError) as error:
            where = f"{request.url}: " if request.url else ""
            why = f"{self.named(request.operation)}: {where}{self._what_broke(error)}"
            raise (Unanswered(why) if leaving else Unsent(why)) from error
        return response

    def read(self, operation: str, response: HttpResponse) -> Any:
        """The result in a success; raises what anything else means."""
        named = self.named(operation)
        try:
            content = orjson.loads(response.body) if response.body else None
        except orjson.JSONDecodeError as garbage:
            if 200 <= response.status < 300:
                raise CloudError(f"{named}: the answer is not JSON: {garbage}") from garbage
            content = None
        if not 200 <= response.status < 300 or self.is_error(content):
            said = self.error_text(content, response)
            message = safe_text(f"{named}: {response.status} {said}".strip())
            raise self.error(message, content, response)
        verify_lists(named, response.body, content)
        return self.result(named, content)

    def named(self, operation: str) -> str:
        """An operation as errors name it."""
        return f"{self.name}: {operation}" if self.name else operation

    @contextmanager
    def _understanding(self, request: Request) -> Iterator[None]:
        """Raise `CloudError` where the answer has another form than is expected."""
        try:
            yield
        except NOT_UNDERSTOOD as error:
            what = f"{self.named(request.operation)}: the answer is not understood"
            raise CloudError(f"{what}: {type(error).__name__}: {error}") from error

    def _what_broke(self, error: Exception) -> str:
        if isinstance(error, TimeoutError) and self._timeout:
            return f"no answer within {self._timeout:g} s"
        return what_broke(error, self.ca_keys)

    # What a cloud is like

    async def client(self, url: str) -> HttpClient:
        """The connections to a server, the first one when it is empty.

        Raises `OSError` or `ValueError` for files with which none can be made.
        """
        return self.connections(self._servers[url or next(iter(self._servers))])

    def connections(self, server: Server) -> HttpClient:
        """The connections to a server with this trust, as its files are now.

        Of servers that an answer names there may be another each time: to those that were not used
        for the longest they are closed.
        """
        reloading = self._clients.pop(server, None) or ReloadingClient(server, self._idle_timeout)
        client = reloading.current()
        self._clients[server] = reloading
        if len(self._clients) > MAX_SERVERS:
            oldest = next(iter(self._clients))
            self._closing.add(start_task(self._clients.pop(oldest).close(), self._closing.discard))
        return client

    def authorization(self, credentials: Any) -> Mapping[str, str]:
        """Headers that say who asks; of one text, that it is a token."""
        (token,) = credentials
        return {"Authorization": f"Bearer {token}"}

    def observe(self, response: HttpResponse) -> None:
        """Look at every response: it may say what is left of a quota."""

    def is_error(self, content: Any) -> bool:
        """Whether a successful status hides an error, by its body."""
        return False

    def error_text(self, content: Any, response: HttpResponse) -> str:
        """What the cloud says is wrong."""
        return text(mapping(content).get("message")) or response.reason

    def error(self, message: str, content: Any, response: HttpResponse) -> CloudError:
        """What an error means for the caller."""
        if response.status == 404 and not isinstance(content, dict):
            return CloudError(f"{message}: the answer is not {self.cloud}'s")  # but a proxy's
        return by_status(message, response)

    def result(self, operation: str, content: Any) -> Any:
        """What is in a success: a JSON object, empty when it has no body."""
        if not isinstance(content, dict | None):
            raise self.unreadable(operation)
        return content or {}

    def unreadable(self, operation: str) -> CloudError:
        """The error for a success of another form than the cloud's."""
        return CloudError(f"{operation}: the answer is not {self.cloud}'s")


def read_list(operation: str, page: Mapping[str, Any], key: str) -> list[Any]:
    """The list under `key` of an answer; raises where there is none: that is not an empty one."""
    found = page.get(key)
    if not isinstance(found, list):
        raise CloudError(f"{operation}: the answer lacks {key}")
    return found


def verify_lists(operation: str, body: bytes, content: object) -> None:
    """Raise `CloudError`, by a `BodyTooLarge`, for a list or object in an answer with too many
    entries: a record may have a million parts, as guests write some. Few answers have as many
    commas; those are gone through level by level, in no more time than they took to be read.
    """
    is_long = isinstance(content, dict | list) and body.count(b",") >= MAX_RECORDS
    level: list[Any] = [content] if is_long else []
    while level:
        verify_count(operation, max(map(len, level)), MAX_RECORDS, BodyTooLarge)
        level = [
            value
            for item in filter(None, level)
            for value in (item.values() if type(item) is dict else item)
            if type(value) in CONTAINERS
        ]


def verify_about(operation: str, record: Mapping[str, Any], key: str, asked: str) -> None:
    """Raise for a record of anything but what was asked for, in any case of letters.

    What stands before a cloud may mix up two answers.
    """
    if text(record.get(key)).lower() != asked.lower():
        raise CloudError(f"{operation}: the answer is not about {asked}")


def next_of(page: Mapping[str, Any], key: str) -> str:
    """By what an answer names its next page; empty where there is none.

    Raises `TypeError` for anything but a text, and for one that is too long to be taken to pieces:
    a part of a list is not all of it.
    """
    found = page.get(key) or ""
    if not isinstance(found, str) or len(found) > MAX_NEXT:
        raise TypeError(f"{key} is not a text of {MAX_NEXT} characters at most")
    return found


def _changed(target: str, changes: Mapping[str, Any]) -> str:
    path, _, query = target.partition("?")
    kept = [pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] not in changes]
    return f"{path}?{urlencode([*kept, *changes.items()])}"


class ReloadingClient:
    """Connections to one server. The one in use keeps its certificates; a new one has the newest.

    Files that cannot be read later on are logged, and those read before go on.
    """

    def __init__(self, server: Server, idle_timeout: float = IDLE_TIMEOUT) -> None:
        self.url = server.url
        self._server, self._idle_timeout = server, idle_timeout
        self._files = [file for file in (server.ca_file, server.cert_file, server.key_file) if file]
        self._clients: list[HttpClient] = []
        self._stamps: list[tuple[int, int]] = []

    def current(self) -> HttpClient:
        """The client to send with; raises `OSError` or `ValueError` for invalid files."""
        try:
            stamps = [file_stamp(file) for file in self._files]
            if not self._clients or stamps != self._stamps:
                new = HttpClient(with_trust(self._server), idle_timeout=self._idle_timeout)
                self.retire()
                self._clients = [client for client in self._clients if client.is_open] + [new]
                self._stamps = stamps
        except (OSError, ValueError) as error:
            if not self._clients:
                raise
            log.warning("certificates are not reloaded", extra={"why": str(error)})
        return self._clients[-1]

    def retire(self) -> None:
        """Close the connections once what is under way on them has ended."""
        for client in self._clients:
            client.retire()

    async def close(self) -> None:
        """Close all connections."""
        while self._clients:
            await self._clients.pop().close()


def file_stamp(file: str) -> tuple[int, int]:
    """What changes with the content; raises `OSError`."""
    about = os.stat(file)
    return about.st_mtime_ns, about.st_ino


def with_trust(server: Server) -> Server:
    """A server's own certificate is trusted whatever the host is called, and no other then.

    One of an authority is not: the server has to have the name of the host then. The first of the
    file says which it is; behind a server's own may be those of authorities, which sign for many.
    """
    if not server.ca_file or not server.url.startswith("https:"):
        return replace(server, ca_file="")
    first = x509.load_pem_x509_certificate(read_bounded(Path(server.ca_file)))
    found = (item.value for item in first.extensions)
    if any(item.ca for item in found if isinstance(item, x509.BasicConstraints)):
        return replace(server, is_pinned=False)
    own = first.public_bytes(Encoding.PEM).decode()
    return replace(server, ca_file="", ca_data=own, is_pinned=True)
