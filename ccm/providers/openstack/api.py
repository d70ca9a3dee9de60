"""The way to OpenStack: one HTTP request at a time through the gate, errors by what to do."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

import orjson

from ccm import __version__
from ccm.cloud.config_file import why_no_certificate, why_unreadable
from ccm.cloud.interface import Gate, Quota
from ccm.cloud.reloading import what_broke
from ccm.errors import (
    CloudError,
    ConfigurationFaults,
    Denied,
    NoRoom,
    Refused,
    RetryAfter,
    Throttled,
)
from ccm.http import HttpClient, HttpResponse, request_target
from ccm.model.objects import Json, mapping, objects, text
from ccm.providers.openstack.calls import ApiCall
from ccm.providers.openstack.config import OpenStackConfig
from ccm.providers.openstack.credentials import GlobalSection
from ccm.providers.openstack.keystone import (
    RENEW_AT,
    Token,
    read_token,
    token_request,
    tokens_url,
)
from ccm.tls import Server

log = logging.getLogger(__name__)

QUOTAS = {
    "identity": Quota(per_second=2.0, burst=10),
    "compute": Quota(per_second=20.0, burst=40),
    "network": Quota(per_second=20.0, burst=40),
    "load-balancer": Quota(per_second=10.0, burst=20),
    "volume": Quota(per_second=10.0, burst=20),
}
"""Of each service by itself. No cloud promises any: a throttled answer teaches better ones."""
MICROVERSIONS = {"compute": ("X-OpenStack-Nova-API-Version", "2.47")}
"""2.47 (Pike, 2017) is the first with the flavor's name in the server."""
PAGE = 1000  # Nova's limit by default, and more than the others' default
RACE_RETRY = 1.0  # seconds until what is at work or was changed meanwhile is read again
DENIED_PAUSE = 10.0  # seconds in which refused credentials are not shown again unless changed
OVER_QUOTA = ("OverQuota", "Quota has been met", "Quota exceeded", "RoutesExhausted")
IDLE_TIMEOUT = 4.0  # seconds; Apache, in front of many an API, closes connections after 5
IMMUTABLE = "immutable"  # Octavia's word in each 409 for what is at work


class NotFound(Refused):
    """The service's positive word that the one thing asked for by its ID does not exist."""


class Conflict(Refused):
    """What was to be created is there already, or something else is in its way."""


class Unauthorized(Denied):
    """The token is not taken: it has expired, or was revoked."""


class Unanswered(CloudError):
    """The service has not answered, or only what stands before it: it may be at work still."""


class OpenStackApi:
    """Requests to the services of one region, each once, with a token that renews itself.

    Raises `Denied` (401, 403), `Throttled` (429), `RetryAfter` (what is at work, or was changed
    meanwhile), `NotFound`, `Conflict`, `NoRoom` (a quota), `Refused` (other 4xx), and `CloudError`
    for everything that is no answer: 5xx, a timeout, a broken connection, an unreadable body.
    `read` gives the configuration as its file is now; credentials may be exchanged there any time.
    """

    def __init__(
        self, config: OpenStackConfig, read: Callable[[], OpenStackConfig], gate: Gate, caller: str
    ) -> None:
        self._config, self._read, self._gate = config, read, gate
        self._agent = f"ccm-supervisor/{__version__} {caller}"
        self._clients: dict[str, HttpClient] = {}
        self._token: Token | None = None
        self._renew_at = 0.0  # monotonic, of the token
        self._renewing = asyncio.Lock()
        self._denied: tuple[OpenStackConfig, float, Denied] | None = None

    @property
    def region(self) -> str:
        """The configured region, else that of the endpoint in use; empty before the first call."""
        configured = self._config.credentials.region
        if configured or self._token is None:
            return configured
        return self._token.endpoint("compute", "", self._interface).region

    async def close(self) -> None:
        """Close all connections."""
        while self._clients:
            await self._clients.popitem()[1].close()

    async def project_id(self) -> str:
        """The project that the token is for."""
        return (await self._valid_token()).project_id

    async def get(self, operation: str, service: str, path: str, **query: str) -> Json:
        """The answer to a GET."""
        return await self.call(operation, service, "GET", request_target(path, query))

    async def call(
        self,
        operation: str,
        service: str,
        method: str,
        target: str,
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Json:
        """The JSON of the answer, empty when it has no body; again with a new token after a 401."""
        token = await self._valid_token()
        for is_last in (False, True):
            try:
                return await self._request(operation, service, method, target, body, headers, token)
            except Unauthorized:
                if is_last:
                    raise
                token = await self._valid_token(instead_of=token)
        raise AssertionError

    async def make(self, call: ApiCall, headers: Mapping[str, str] | None = None) -> Json:
        """The answer to a call of a plan."""
        return await self.call(
            call.operation, call.service, call.method, call.path, call.body, headers
        )

    async def pages(
        self, operation: str, service: str, path: str, key: str, **query: str
    ) -> list[Json]:
        """What all pages of a list have under `key`; raises rather than return a part."""
        items: list[Json] = []
        seen = set[str]()
        query = {"limit": str(PAGE), **query}
        while True:
            answer = await self.get(operation, service, path, **query)
            page = answer.get(key)
            if not isinstance(page, list):
                raise CloudError(f"{operation}: the answer lacks {key}")
            items += objects(page)
            links = objects(answer.get(f"{key}_links"))
            if not page or not any(link.get("rel") == "next" for link in links):
                return items
            marker = text(mapping(page[-1]).get("id"))
            if not marker or marker in seen:
                raise CloudError(f"the pages of {operation} go round in a circle")
            seen.add(marker)
            query["marker"] = marker

    # Tokens

    @property
    def _interface(self) -> str:
        return self._config.credentials.os_endpoint_type or "public"

    async def _valid_token(self, instead_of: Token | None = None) -> Token:
        """The token, got or renewed by the first who needs it; an old one while it is good."""
        async with self._renewing:
            token = self._token
            is_usable = token is not None and token is not instead_of
            if token and is_usable and time.monotonic() < self._renew_at:
                return token
            try:
                self._token = await self._new_token()
            except CloudError as error:
                if token is None or not is_usable:
                    raise
                grace = token.lifetime * (1 - RENEW_AT) / 4
                self._renew_at = time.monotonic() + grace
                log.warning("the token is not renewed yet", extra={"why": str(error)})
                return token
            self._renew_at = time.monotonic() + self._token.lifetime * RENEW_AT
            return self._token

    async def _new_token(self) -> Token:
        """Ask Keystone; refused credentials are shown again when they have changed, or later."""
        self._reload()
        if self._denied:
            config, until, error = self._denied
            if config == self._config and time.monotonic() < until:
                raise Denied(str(error))
        known = self._config.credentials
        content = orjson.dumps(token_request(known))
        url = tokens_url(known.auth_url)

        async def send() -> HttpResponse:
            answer = await self._send("GetToken", url, "POST", "/auth/tokens", {}, content)
            _read("GetToken", answer)
            return answer

        try:
            answer = await self._gate.call("GetToken", "identity", send, is_write=False)
        except (Unauthorized, NotFound) as error:
            # A credential that was deleted is not found.
            denied = Denied(f"Keystone refuses the credentials: {error}")
            self._denied = self._config, time.monotonic() + DENIED_PAUSE, denied
            raise denied from error
        self._denied = None
        return read_token(answer.header("X-Subject-Token"), orjson.loads(answer.body))

    def _reload(self) -> None:
        """Take up credentials that were exchanged in the files."""
        try:
            config = self._read()
        except (ConfigurationFaults, OSError) as wrong:
            log.warning("the cloud configuration is not reloaded", extra={"why": str(wrong)})
            return
        if config.credentials != self._config.credentials:
            log.info("credentials reloaded")
            self._config = config

    # Requests

    async def _request(
        self,
        operation: str,
        service: str,
        method: str,
        target: str,
        body: Json | None,
        headers: Mapping[str, str] | None,
        token: Token,
    ) -> Json:
        where = token.endpoint(service, self._config.credentials.region, self._interface)
        sent = {"X-Auth-Token": token.value, **(headers or {})}
        if service in MICROVERSIONS:
            name, version = MICROVERSIONS[service]
            sent[name] = version
        content = b"" if body is None else orjson.dumps(body)

        async def send() -> Json:
            return _read(
                operation, await self._send(operation, where.url, method, target, sent, content)
            )

        try:
            return await self._gate.call(operation, service, send, is_write=method != "GET")
        except CloudError as error:
            cause = error.__cause__  # a timeout is an OSError, too
            was_sent = isinstance(cause, OSError) and not isinstance(cause, ConnectionRefusedError)
            if was_sent and type(error) is CloudError:
                raise Unanswered(str(error)) from error
            raise

    async def _send(
        self,
        operation: str,
        url: str,
        method: str,
        target: str,
        headers: Mapping[str, str],
        content: bytes,
    ) -> HttpResponse:
        usual = {
            "User-Agent": self._agent,
            "Accept": "application/json",
            "Content-Type": "application/json",
        }
        timeout = self._config.metadata.request_timeout
        try:
            async with asyncio.timeout(timeout):
                return await self._client(url).request(
                    method, target, {**usual, **headers}.items(), content, may_retry=method == "GET"
                )
        except TimeoutError as late:
            raise CloudError(f"{operation}: no answer within {timeout:g} s") from late
        except (OSError, ValueError) as broken:
            why = what_broke(broken, "[Global] ca-file")
            raise CloudError(f"{operation}: {why}") from broken

    def _client(self, url: str) -> HttpClient:
        if url not in self._clients:
            known = self._config.credentials
            check_files(known)
            self._clients[url] = HttpClient(
                Server(
                    url,
                    known.ca_file,
                    cert_file=known.cert_file,
                    key_file=known.key_file,
                    is_verified=not known.tls_insecure,
                ),
                idle_timeout=IDLE_TIMEOUT,
            )
        return self._clients[url]


def check_files(known: GlobalSection) -> None:
    """Raise `ValueError` for a file with which no connection can be made; TLS names no key."""
    for key, file in (("ca-file", known.ca_file), ("cert-file", known.cert_file)):
        if why := file and why_no_certificate(file):
            raise ValueError(f"[Global] {key} {why}")
    if why := known.key_file and why_unreadable(known.key_file):
        raise ValueError(f"[Global] key-file {why}")


def _read(operation: str, answer: HttpResponse) -> Json:
    """The JSON object of a success; raises what any other status means."""
    status = answer.status
    if not 200 <= status < 300:
        raise to_cloud_error(operation, answer)
    if not answer.body:
        return {}
    try:
        content = orjson.loads(answer.body)
    except orjson.JSONDecodeError as garbage:
        raise CloudError(f"{operation}: the answer is not JSON: {garbage}") from garbage
    if not isinstance(content, dict):
        raise CloudError(f"{operation}: the answer is no object")
    return content


STATUS_ERRORS: Mapping[int, Callable[[str], CloudError]] = {
    401: Unauthorized,
    403: Denied,
    404: NotFound,
    408: CloudError,
    502: Unanswered,
    504: Unanswered,
    409: Conflict,
}


def to_cloud_error(operation: str, answer: HttpResponse) -> CloudError:
    status, said = answer.status, error_text(answer.body)
    message = f"{operation}: {status} {said}".strip()
    if status in (413, 429):
        return Throttled(message, answer.retry_after)
    if status in (400, 403, 409) and any(words in said for words in OVER_QUOTA):
        return NoRoom(message)
    if status == 412 or (status == 409 and IMMUTABLE in said):
        return RetryAfter(message, RACE_RETRY)
    usual = Refused if 400 <= status < 500 else CloudError
    return STATUS_ERRORS.get(status, usual)(message)


def error_text(body: bytes) -> str:
    """What a service says is wrong; each has a form of its own."""
    try:
        content = mapping(orjson.loads(body))
    except orjson.JSONDecodeError:
        return ""
    for said in (content, *map(mapping, content.values())):
        parts = [text(said.get(key)) for key in ("type", "title", "message", "faultstring")]
        if words := ": ".join(filter(None, parts)):
            return words
    return ""
