"""The way to one Incus: one HTTP request at a time through the gate, errors by what to do."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlencode

from aiohttp import (
    ClientError,
    ClientSession,
    ClientWebSocketResponse,
    ClientWSTimeout,
    TCPConnector,
    TraceConfig,
    TraceRequestRedirectParams,
    UnixConnector,
    WSServerHandshakeError,
)

from ccm.cloud.credentials import Credentials
from ccm.cloud.failures import what_broke
from ccm.cloud.interface import Gate, Quota
from ccm.cloud.json_api import JsonApi, Request, file_stamp, with_trust
from ccm.errors import CloudError, Conflict, Denied, Refused, RetryAfter, Unauthenticated
from ccm.http import HttpResponse, request_target
from ccm.model.objects import Json, mapping, text
from ccm.providers.incus.config import Remote
from ccm.proxy import proxy_for
from ccm.tls import Server, client_tls

QUOTAS = {"read": Quota(per_second=20.0, burst=40), "write": Quota(per_second=10.0, burst=20)}
"""Incus has no limits but its CPU and its one database leader: this is what we leave it."""
IDLE_TIMEOUT = 10.0  # seconds; Incus closes idle connections after 30
EVENTS_HEARTBEAT = 30.0  # seconds between pings to a stream of events
CLOSE_TIMEOUT = 1.0  # seconds in which the other end may close a stream as well
RACE_RETRY = 1.0  # seconds until what is at work or was changed meanwhile is read again

# Incus answers 500 to almost everything, so the text decides.
DENIED = ("not have permission", "not authorized", "Certificate is restricted")
TAKEN = ("overlaps with", "already exists", "already defined")
AT_WORK = ("Couldn't find a logical switch port", "isn't ready yet")
INVALID = (
    "doesn't contain", "not within", "Invalid", "Duplicate", "Missing VIP", "not allowed",
    "not supported",
)  # fmt: skip
MEMBER_IS_DOWN = ("peer node", "notify peer", "Missing event connection", "Unable to connect")


class IncusApi(JsonApi):
    """Requests to one Incus. Raises as any `JsonApi`, and `RetryAfter` for what is at work, or was
    changed meanwhile.
    """

    cloud, ca_keys = "Incus", "server-certificate"

    def __init__(self, name: str, remote: Remote, gate: Gate, caller: str) -> None:
        self._server = Server(
            remote.url,
            remote.server_certificate,
            cert_file=remote.certificate,
            key_file=remote.key,
        )
        credentials = Credentials(self._certificate, "certificate and key of the [Remote]")
        super().__init__(
            gate,
            caller,
            self._server,
            credentials=credentials if remote.certificate else None,
            name=name,
            idle_timeout=IDLE_TIMEOUT,
        )
        self.projects, self.region = remote.project, remote.region

    @asynccontextmanager
    async def listen(self, project: str) -> AsyncIterator[ClientWebSocketResponse]:
        """An open stream of what happens to a project's instances, networks and others.

        Who reads it answers its pings: aiohttp would answer all that are there in one turn.
        """
        server = with_trust(self._server)
        is_socket = server.url.startswith("unix:")
        url = "http://localhost" if is_socket else server.url
        target = f"{url}/1.0/events?{urlencode({'type': 'lifecycle', 'project': project})}"
        path, tls = server.url.removeprefix("unix://"), client_tls(server) or True
        connector = UnixConnector(path) if is_socket else TCPConnector(ssl=tls)
        trace = TraceConfig()
        trace.on_request_redirect.append(_refuse_redirection)
        async with ClientSession(connector=connector, trace_configs=[trace]) as session:

            async def connect() -> ClientWebSocketResponse:
                try:
                    proxy = proxy_for(server.url)
                    return await session.ws_connect(
                        target,
                        heartbeat=EVENTS_HEARTBEAT,
                        autoping=False,
                        timeout=ClientWSTimeout(ws_close=CLOSE_TIMEOUT),
                        proxy=proxy.address if proxy else None,
                        proxy_headers=dict(proxy.headers) if proxy else None,
                    )
                except WSServerHandshakeError as error:
                    message = f"{self.named('GetEvents')}: {error.status} {error.message}"
                    raise self.error(message, {}, HttpResponse(error.status, "", {})) from error
                except (ClientError, OSError, ValueError) as error:
                    raise CloudError(
                        f"{self.named('GetEvents')}: {what_broke(error, self.ca_keys)}"
                    ) from error

            stream = await self.gate.call("GetEvents", "read", connect, is_write=False)
            try:
                yield stream
            finally:
                with suppress(TimeoutError):  # of messages without end, aiohttp waits for the next
                    async with asyncio.timeout(CLOSE_TIMEOUT):
                        await stream.close()

    async def get(self, operation: str, path: str, **query: str) -> Any:
        """The metadata of the answer to a GET."""
        return await self.call(operation, "GET", path, query)

    async def get_named(self, operation: str, path: str, name: str, **query: str) -> Json:
        """The same where it has to be the record of this name."""
        found = await self.get(operation, path, **query)
        if not isinstance(found, dict) or found.get("name") != name:
            raise CloudError(f"{self.named(operation)}: the answer is not about {name}")
        return found

    async def get_config(self, operation: str, path: str, name: str, **query: str) -> Json:
        """The configuration of the record of this name; an answer without any decides nothing."""
        config = (await self.get_named(operation, path, name, **query)).get("config")
        if not isinstance(config, dict):
            raise CloudError(f"{self.named(operation)}: the answer has no configuration of {name}")
        return config

    async def get_tagged(
        self, operation: str, path: str, query: Mapping[str, str]
    ) -> tuple[Any, str]:
        """The same with its ETag, which says of a write whether it is still about what was read."""
        target = request_target(f"/1.0{path}", query)
        result, response = await self.exchange(Request(operation, "read", "GET", target))
        return result, response.header("ETag")

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
        budget = "read" if method == "GET" else "write"
        headers = {"If-Match": if_match} if if_match else {}
        target = request_target(f"/1.0{path}", query)
        return await self.request(Request(operation, budget, method, target, body, headers))

    async def _certificate(self) -> list[tuple[int, int]]:
        """Changes when a certificate is exchanged, which TLS then reads from the files."""
        with suppress(OSError):
            return [file_stamp(file) for file in (self._server.cert_file, self._server.key_file)]
        return []  # those that were read before go on

    def authorization(self, credentials: Any) -> Mapping[str, str]:
        return {}

    async def attempt(self, request: Request) -> tuple[Any, HttpResponse]:
        """Incus answers untrusted clients as it does those without permission."""
        try:
            return await super().attempt(request)
        except Denied as denied:
            if await self._trusts():
                raise
            why = f"{denied}: Incus does not trust the certificate"
            raise Unauthenticated(why) from denied

    async def _trusts(self) -> bool:
        """False only on Incus' own word."""
        try:
            server, _ = await super().attempt(Request("GetServer", "read", "GET", "/1.0"))
        except CloudError:
            return True
        return text(mapping(server).get("auth")) != "untrusted"

    def is_error(self, content: Any) -> bool:
        return mapping(content).get("type") == "error"

    def error_text(self, content: Any, response: HttpResponse) -> str:
        return text(mapping(content).get("error"))

    def error(self, message: str, content: Any, response: HttpResponse) -> CloudError:
        def says(words: tuple[str, ...]) -> bool:
            return any(word in message for word in words)

        match response.status:
            case 500 if says(DENIED):
                return Denied(message)
            case status if status == 412 or (status >= 500 and says(AT_WORK)):
                return RetryAfter(message, RACE_RETRY)
            case status if status >= 500 and says(MEMBER_IS_DOWN):
                return CloudError(f"a cluster member does not answer: {message}")
            case 500 if says(TAKEN):
                return Conflict(message)
            case 500 if says(INVALID):
                return Refused(message)
        return super().error(message, content, response)

    def result(self, operation: str, content: Any) -> Any:
        envelope = mapping(content)
        kind = envelope.get("type")
        if kind == "async":
            raise RetryAfter(f"{operation}: Incus is at work", RACE_RETRY)
        if kind != "sync" or "metadata" not in envelope:
            raise self.unreadable(operation)
        return envelope["metadata"]


async def _refuse_redirection(
    session: ClientSession, context: object, params: TraceRequestRedirectParams
) -> None:
    """aiohttp would follow one to any host, with TLS or without."""
    response = params.response
    raise WSServerHandshakeError(
        response.request_info, (), status=response.status, message=response.reason or ""
    )
