"""The way to OpenStack: one HTTP request at a time through the gate, errors by what to do."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from ccm.cloud.config_file import certificate_problem, why_unreadable
from ccm.cloud.credentials import PASSWORD_PAUSE, TOKEN_PAUSE, Credentials, RenewedToken
from ccm.cloud.failures import Unsent
from ccm.cloud.interface import Gate, Quota
from ccm.cloud.json_api import JsonApi, Request, next_of, read_list
from ccm.cloud.lookup import MAX_PARTS, verify_count
from ccm.errors import (
    CloudError,
    ConfigurationFaults,
    NoRoom,
    NotFound,
    RetryAfter,
    Throttled,
    Unanswered,
    Unauthenticated,
)
from ccm.http import HttpResponse, request_target
from ccm.http_client import HttpClient
from ccm.model.objects import Json, mapping, objects, text
from ccm.providers.openstack.calls import ApiCall
from ccm.providers.openstack.config import OpenStackConfig
from ccm.providers.openstack.credentials import GlobalSection
from ccm.providers.openstack.keystone import (
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
CATALOG_RETRY = 60.0  # seconds until a catalogue that lacks a service is asked for again
OVER_QUOTA = ("OverQuota", "Quota has been met", "Quota exceeded", "RoutesExhausted")
IDLE_TIMEOUT = 4.0  # seconds; Apache, in front of many an API, closes connections after 5
IMMUTABLE = "immutable"  # Octavia's word in each 409 for what is at work


class OpenStackApi(JsonApi):
    """Requests to the services of one region, each once, with a token that renews itself.

    Raises as any `JsonApi`, `RetryAfter` for what is at work or was changed meanwhile, and `NoRoom`
    for a quota. `read` gives the configuration as its file is now; credentials may be exchanged
    there any time.
    """

    cloud, ca_keys = "OpenStack", "[Global] ca-file"

    def __init__(
        self, config: OpenStackConfig, read: Callable[[], OpenStackConfig], gate: Gate, caller: str
    ) -> None:
        timeout = config.metadata.request_timeout
        super().__init__(gate, caller, timeout=timeout, idle_timeout=IDLE_TIMEOUT)
        self._config, self._read_config = config, read
        self._tokens = RenewedToken(lambda: self._login.use(self._new_token))
        known = config.credentials
        locks = known.password or known.trustee_password
        self._login = Credentials(
            self._current_credentials,
            "the credentials in [Global]",
            backoff=PASSWORD_PAUSE if locks else TOKEN_PAUSE,
        )

    @property
    def region(self) -> str:
        """The configured region, else that of the endpoint in use; empty before the first call."""
        configured = self._config.credentials.region
        token = self._tokens.current
        if configured or token is None:
            return configured
        return token.endpoint("compute", "", self._interface).region

    async def project_id(self) -> str:
        """The project that the token is for."""
        return (await self._tokens.get()).project_id

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
        """The JSON of the answer, empty when it has no body."""
        request = Request(operation, service, method, target, body, headers or {})
        answer: Json = await self.request(request)
        return answer

    async def exchange(self, request: Request) -> tuple[Any, HttpResponse]:
        """At the service's endpoint, with the token."""
        if request.url:
            return await self.attempt(request)
        try:
            return await self._tokens.use(
                lambda token: self.attempt(self._with_token(request, token))
            )
        except Unsent:  # its catalogue may lead to where the service is no longer
            self._tokens.renew_within(CATALOG_RETRY)
            raise

    async def make(self, call: ApiCall, headers: Mapping[str, str] | None = None) -> Json:
        """The answer to a call of a plan."""
        return await self.call(
            call.operation, call.service, call.method, call.path, call.body, headers
        )

    async def pages(
        self, operation: str, service: str, path: str, key: str, **query: str
    ) -> list[Json]:
        """What all pages of a list have under `key`; raises rather than return a part."""
        target = request_target(path, {"limit": str(PAGE), **query})
        return await self.pages_at(operation, service, target, key)

    async def pages_at(self, operation: str, service: str, target: str, key: str) -> list[Json]:
        """The same from this path and query on."""
        items: list[Json] = []

        def next_page(answer: Json) -> Mapping[str, str]:
            links = answer.get(f"{key}_links") or ()
            if not isinstance(links, list | tuple):
                raise TypeError(f"{key}_links is not a list")
            if not any(link.get("rel") == "next" for link in links):
                return {}
            return {"marker": next_of(mapping(answer[key][-1]), "id")}

        first = Request(operation, service, "GET", target)
        async for answer in self.read_pages(first, next_page):
            items += objects(read_list(operation, answer, key))
            verify_count(operation, len(items))
        return items

    # Tokens

    @property
    def _interface(self) -> str:
        return self._config.credentials.os_endpoint_type or "public"

    async def _new_token(self, known: GlobalSection) -> Token:
        """Ask Keystone."""
        request = Request(
            "GetToken",
            "identity",
            "POST",
            "/auth/tokens",
            token_request(known),
            url=tokens_url(known.auth_url),
            changes_nothing=True,
        )
        try:
            answer, response = await self.attempt(request)
        except (Unauthenticated, NotFound) as error:
            # A credential that was deleted is not found.
            raise Unauthenticated(f"Keystone refuses the credentials: {error}") from error
        return read_token(response.header("X-Subject-Token"), answer)

    async def _current_credentials(self) -> GlobalSection:
        """Those of now, exchanged in the files or not."""
        try:
            config = self._read_config()
        except (ConfigurationFaults, OSError) as error:
            log.warning("the cloud configuration is not reloaded", extra={"why": str(error)})
        else:
            if config.credentials != self._config.credentials:
                log.info("credentials reloaded")
                self._config = config
        return self._config.credentials

    # Requests

    def _with_token(self, request: Request, token: Token) -> Request:
        known, service = self._config.credentials, request.budget
        headers = {"X-Auth-Token": token.value, **request.headers}
        if service in MICROVERSIONS:
            name, version = MICROVERSIONS[service]
            headers[name] = version
        try:
            url = token.endpoint(service, known.region, self._interface).url
        except CloudError:
            self._tokens.renew_within(CATALOG_RETRY)
            raise
        return replace(request, headers=headers, url=url)

    async def client(self, url: str) -> HttpClient:
        known = self._config.credentials
        server = Server(
            url,
            known.ca_file,
            cert_file=known.cert_file,
            key_file=known.key_file,
            is_verified=not known.tls_insecure,
        )
        if server not in self._clients:
            check_files(known)
        return self.connections(server)

    def error_text(self, content: Any, response: HttpResponse) -> str:
        """Each service has a form of its own."""
        content = mapping(content)
        for said in map(mapping, (content, *islice(content.values(), MAX_PARTS))):
            parts = [text(said.get(key)) for key in ("type", "title", "message", "faultstring")]
            if words := ": ".join(filter(None, parts)):
                return words
        return ""

    def error(self, message: str, content: Any, response: HttpResponse) -> CloudError:
        match response.status:
            case 400 | 403 | 409 if any(words in message for words in OVER_QUOTA):
                return NoRoom(message)
            case 413 if response.retry_after is not None:  # else the request is too large
                return Throttled(message, response.retry_after)
            case status if status == 412 or (status == 409 and IMMUTABLE in message):
                return RetryAfter(message, RACE_RETRY)
            case 502 | 504:  # of what stands before the service, which may be at work still
                return Unanswered(message)
        return super().error(message, content, response)


def check_files(known: GlobalSection) -> None:
    """Raise `ValueError` for a file with which no connection can be made; TLS names no key."""
    for key, file in (("ca-file", known.ca_file), ("cert-file", known.cert_file)):
        if why := file and certificate_problem(file):
            raise ValueError(f"[Global] {key} {why}")
    if why := known.key_file and why_unreadable(known.key_file):
        raise ValueError(f"[Global] key-file {why}")
