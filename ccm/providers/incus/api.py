"""The way to one Incus: one HTTP request at a time through the gate, errors by what to do."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import orjson
from aiohttp import (
    ClientError,
    ClientSession,
    ClientWebSocketResponse,
    ClientWSTimeout,
    TCPConnector,
    UnixConnector,
    WSServerHandshakeError,
)

from ccm import __version__
from ccm.cloud.interface import Gate, Quota
from ccm.cloud.reloading import ReloadingClient, with_trust
from ccm.errors import CloudError, Denied, Refused, RetryAfter, Throttled
from ccm.http import HttpResponse
from ccm.model.objects import Json, mapping, text
from ccm.providers.incus.config import Remote
from ccm.tls import Server, client_tls

QUOTAS = {"read": Quota(per_second=20.0, burst=40), "write": Quota(per_second=10.0, burst=20)}
"""Incus has no limits but its CPU and its one database leader: this is what we leave it."""
IDLE_TIMEOUT = 10.0  # seconds; Incus closes idle connections after 30
EVENTS_HEARTBEAT = 30.0  # seconds between pings to a stream of events
RACE_RETRY = 1.0  # seconds until what is at work or was changed meanwhile is read again

# Incus says 500 to almost everything, so the text tells.
DENIED = ("not have permission", "not authorized", "Certificate is restricted")
TAKEN = ("overlaps with", "already exists", "already defined")
AT_WORK = ("Couldn't find a logical switch port", "isn't ready yet")
INVALID = (
    "doesn't contain", "not within", "Invalid", "Duplicate", "Missing VIP", "not allowed",
    "not supported",
)  # fmt: skip
MEMBER_IS_DOWN = ("peer node", "notify peer", "Missing event connection", "Unable to connect")


class NotFound(Refused):
    """Incus' positive word that something asked for by its name does not exist; maybe a project."""


class Conflict(Refused):
    """What was to be created is there already, or something else is in its way."""


class IncusApi:
    """Requests to one Incus, each once.

    Raises `Denied`, `NotFound`, `Conflict`, `RetryAfter` (what is at work, or was changed
    meanwhile), `Refused` (what it will never take), and `CloudError` for everything else: no
    answer, an unreadable one, other errors of the server. After a write that has no answer nobody
    knows whether it was made.
    """

    def __init__(self, name: str, remote: Remote, gate: Gate, caller: str) -> None:
        self.name, self.projects, self.region = name, remote.project, remote.region
        self._gate = gate
        self._agent = f"ccm-supervisor/{__version__} {caller}"
        server = Server(
            remote.url,
            remote.server_certificate,
            cert_file=remote.certificate,
            key_file=remote.key,
        )
        self._server, self._client = server, ReloadingClient(server, IDLE_TIMEOUT)

    @asynccontextmanager
    async def listen(self, project: str) -> AsyncIterator[ClientWebSocketResponse]:
        """An open stream of what happens to a project's instances, networks and others."""
        server = with_trust(self._server)
        is_socket = server.url.startswith("unix:")
        url = "http://localhost" if is_socket else server.url
        target = f"{url}/1.0/events?{urlencode({'type': 'lifecycle', 'project': project})}"
        path, tls = server.url.removeprefix("unix://"), client_tls(server) or True
        connector = UnixConnector(path) if is_socket else TCPConnector(ssl=tls)
        async with ClientSession(connector=connector) as session:

            async def connect() -> ClientWebSocketResponse:
                try:
                    return await session.ws_connect(
                        target, heartbeat=EVENTS_HEARTBEAT, timeout=ClientWSTimeout(ws_close=1.0)
                    )
                except WSServerHandshakeError as error:
                    raise to_cloud_error(f"GetEvents: {error.message}", error.status) from error
                except (ClientError, OSError, ValueError) as broken:
                    raise CloudError(f"GetEvents: {type(broken).__name__}: {broken}") from broken

            stream = await self._gate.call("GetEvents", "read", connect, is_write=False)
            try:
                yield stream
            finally:
                await stream.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def get(self, operation: str, path: str, **query: str) -> Any:
        """The metadata of the answer to a GET."""
        return await self.call(operation, "GET", path, query)

    async def get_tagged(
        self, operation: str, path: str, query: Mapping[str, str]
    ) -> tuple[Any, str]:
        """The same with its ETag, which says of a write whether it is still about what was read."""
        target = f"/1.0{path}?{urlencode(query)}"

        async def send() -> tuple[Any, str]:
            answer = await self._send(operation, "GET", target, b"")
            return read_answer(operation, answer), answer.header("ETag")

        return await self._gate.call(operation, "read", send, is_write=False)

    async def call(
        self,
        operation: str,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Json | None = None,
        if_match: str = "",
    ) -> Any:
        """The metadata of the answer; `RetryAfter` while Incus goes on with it by itself.

        With `if_match` it is one, too, when what had this ETag has been changed meanwhile.
        """
        target = f"/1.0{path}?{urlencode(query)}" if query else f"/1.0{path}"
        content = b"" if body is None else orjson.dumps(body)

        async def send() -> Any:
            return read_answer(
                operation, await self._send(operation, method, target, content, if_match)
            )

        is_write = method != "GET"
        budget = "write" if is_write else "read"
        return await self._gate.call(operation, budget, send, is_write=is_write)

    async def _send(
        self, operation: str, method: str, target: str, content: bytes, if_match: str = ""
    ) -> HttpResponse:
        headers = {"User-Agent": self._agent, "Content-Type": "application/json"}
        if if_match:
            headers["If-Match"] = if_match
        try:
            return await self._client.current().request(
                method, target, headers.items(), content, may_retry=method == "GET"
            )
        except (OSError, ValueError) as broken:
            raise CloudError(f"{operation}: {type(broken).__name__}: {broken}") from broken


def read_answer(operation: str, answer: HttpResponse) -> Any:
    """The metadata in the envelope of a success; raises what anything else means."""
    try:
        content = mapping(orjson.loads(answer.body))
    except orjson.JSONDecodeError as garbage:
        if 200 <= answer.status < 300:
            raise CloudError(f"{operation}: the answer is not JSON: {garbage}") from garbage
        content = {}
    kind, status = content.get("type"), answer.status
    if kind == "error" or not 200 <= status < 300:
        said = text(content.get("error"))
        raise to_cloud_error(f"{operation}: {status} {said}".strip(), status, answer.retry_after)
    if kind == "async":
        raise RetryAfter(f"{operation}: Incus is at work", RACE_RETRY)
    if kind != "sync" or "metadata" not in content:
        raise CloudError(f"{operation}: the answer is none of Incus'")
    return content["metadata"]


def to_cloud_error(message: str, status: int, retry_after: float | None = None) -> CloudError:
    """What an error of Incus means for the caller."""

    def says(words: tuple[str, ...]) -> bool:
        return any(word in message for word in words)

    if status in (401, 403) or (status == 500 and says(DENIED)):
        return Denied(message)
    if status == 429:
        return Throttled(message, retry_after)
    if status == 404:
        return NotFound(message)
    if status == 412 or (status >= 500 and says(AT_WORK)):
        return RetryAfter(message, RACE_RETRY)
    if status >= 500 and says(MEMBER_IS_DOWN):
        return CloudError(f"a cluster member does not answer: {message}")
    if status == 409 or (status == 500 and says(TAKEN)):
        return Conflict(message)
    if status == 500 and says(INVALID):
        return Refused(message)
    return Refused(message) if 400 <= status < 500 else CloudError(message)
