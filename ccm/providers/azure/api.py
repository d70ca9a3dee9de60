"""The way to Resource Manager: one request at a time through the gate, errors by what to do.

A change may be accepted and go on for minutes: it is followed to its end, as it may fail late.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from ccm.cloud.credentials import PASSWORD_PAUSE, TOKEN_PAUSE, Credentials, RenewedToken
from ccm.cloud.interface import Gate, Quota
from ccm.cloud.json_api import JsonApi, Request, next_of, read_list
from ccm.cloud.lookup import verify_count
from ccm.cloud.shared_read import SharedLock
from ccm.errors import (
    CloudError,
    ConfigurationFaults,
    Conflict,
    Denied,
    NoRoom,
    NotFound,
    Refused,
    RetryAfter,
    Throttled,
    Unauthenticated,
)
from ccm.http import HttpResponse, request_target
from ccm.http_client import HttpClient
from ccm.model.annotations import whole_number
from ccm.model.objects import Json, mapping, objects, text
from ccm.providers.azure.config import CLOUDS, AzureConfig, Endpoints
from ccm.providers.azure.identity import (
    Identity,
    Token,
    read_identity,
    read_token,
    token_request,
)
from ccm.providers.azure.ids import COMPUTE, key_of, properties_of, scope_of
from ccm.tls import Server

log = logging.getLogger(__name__)

QUOTAS = {
    "identity": Quota(per_second=2.0, burst=10),
    "compute-read": Quota(per_second=12.0, burst=100),
    "compute-write": Quota(per_second=5.0, burst=50),
    "network-read": Quota(per_second=12.0, burst=100),
    "network-write": Quota(per_second=10.0, burst=100),
}
"""A subscription gives 25 reads and 10 writes a second, after 250 and 200 at once."""
REFILL = 10.0  # seconds in which Resource Manager gives back what an answer says is left
VERSIONS = {
    "microsoft.compute": "2021-04-01",  # what it has in which region
    "microsoft.compute/disks": "2025-01-02",
    "microsoft.compute/virtualmachines": "2025-04-01",
    "microsoft.compute/virtualmachinescalesets": "2025-04-01",
}
NETWORK_VERSION, SET_NETWORK_VERSION = "2025-05-01", "2018-10-01"
"""Those of armcompute v7 and armnetwork v9, by whose types the lab of the tests goes."""
METADATA_TARGET = "/metadata/endpoints?api-version=2019-05-01"
POLL_INTERVAL, LONGEST_POLL = 1.0, 10.0  # seconds between looks at an operation
FOLLOWED = 180.0  # seconds for which an operation is followed; then its work is looked at again
BUSY_RETRY = 5.0  # seconds until what another operation is at work on is tried again
TOO_MANY = "TooMany"  # of calls, in a detail
RACE_RETRY = 0.5  # seconds until what was changed meanwhile is read again

ELSEWHERE = ("ResourceGroupNotFound", "SubscriptionNotFound", "InvalidSubscriptionId")
"""404 of all that is in a group or a subscription: nothing is known of one resource."""
ANOTHER_TENANT = "InvalidAuthenticationTokenTenant"
"""401 for a subscription of another tenant, which says nothing of our credentials."""
BUSY = (
    *("AnotherOperationInProgress", "RetryableError", "ReferencedResourceNotProvisioned"),
    *("CanceledAndSupersededDueToAnotherOperation", "PublicIPAddressCannotBeDeleted"),
    *("OperationPreempted", "Canceled"),
)
"""Codes of what ends by itself: someone else's write, or a reference that is about to go."""
FULL = ("limitreached", "quotaexceeded", "limitexceeded", "prioritiesexhausted")
"""What codes end with, in small letters, where a quota is used up."""
REMAINING = "x-ms-ratelimit-remaining-subscription-"
_WINDOW = re.compile(r"([1-9][0-9]{0,3})(Min|Sec)")


class PreconditionFailed(RetryAfter):
    """The resource was changed since it was read (412)."""


class Elsewhere(CloudError):
    """The group or the subscription is not there (404)."""


class AzureApi(JsonApi):
    """Requests to one cloud, each once, with a token that renews itself.

    Raises as any `JsonApi`, `RetryAfter` for what is at work, `PreconditionFailed`, and `NoRoom`
    for a quota.
    `read_config` gives the configuration as its file is now; credentials may be exchanged there.
    """

    cloud, ca_keys = "Azure", "caFile"

    def __init__(
        self, config: AzureConfig, read_config: Callable[[], AzureConfig], gate: Gate, caller: str
    ) -> None:
        super().__init__(gate, caller)
        self._config, self._read_config = config, read_config
        self._endpoints = None if config.resource_manager_endpoint else CLOUDS[config.cloud.lower()]
        self._looking, self._has_no_token = SharedLock(), False
        self._tokens: dict[str, RenewedToken[Token]] = {}  # by tenant
        self._login = Credentials(
            self._identity,
            "the credentials in azure.json",
            backoff=PASSWORD_PAUSE if config.aad_client_secret else TOKEN_PAUSE,
        )

    # Requests

    async def get(self, operation: str, path: str, **query: str) -> Json:
        """The answer to a GET."""
        answer: Json = await self.request(self._request(operation, "GET", path, query))
        return answer

    async def list(self, operation: str, path: str, **query: str) -> list[Json]:
        """What all pages of a list have of its group; raises rather than return a part."""
        root = f"{path.lower().partition('/providers/')[0]}/"
        host = urlsplit((await self._known_endpoints()).resource_manager).netloc
        items: list[Json] = []

        def next_page(page: Json) -> Mapping[str, str]:
            following = urlsplit(link := next_of(page, "nextLink"))
            if following.netloc not in ("", host):
                raise CloudError(f"{operation}: the next page is on another host")
            if link and not following.query:
                raise CloudError(f"{operation}: the next page is not understood")
            return dict(parse_qsl(following.query))

        async for page in self.read_pages(self._request(operation, "GET", path, query), next_page):
            listed = objects(read_list(operation, page, "value"))
            verify_count(operation, len(items) + len(listed))
            items += [item for item in listed if key_of(item).startswith(root)]
        return items

    async def put(self, operation: str, path: str, body: Json, etag: str = "") -> Json:
        """Make a resource what `body` says, if it still has the ETag; the resource as answered."""
        if not etag and properties_of(body).get("provisioningState"):
            raise CloudError(f"{operation}: {path} was read without its ETag")
        headers = {"If-Match": etag} if etag else {}
        request = self._request(operation, "PUT", path, {}, body, headers)
        answer, response = await self.exchange(request)
        await self._follow(operation, response)
        return dict(answer)

    async def delete(self, operation: str, path: str) -> None:
        """Delete a resource; nothing there is success."""
        try:
            _, response = await self.exchange(self._request(operation, "DELETE", path, {}))
        except NotFound:
            return
        await self._follow(operation, response)

    def _request(
        self,
        operation: str,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Request:
        budget, version = _class_of(path.lower())
        return Request(
            operation,
            f"{budget}-{'read' if method == 'GET' else 'write'}",
            method,
            request_target(path, {"api-version": version, **query}),
            body,
            headers or {},
        )

    async def exchange(self, request: Request) -> tuple[Any, HttpResponse]:
        """With the token of the tenant."""
        if request.url:
            return await self.attempt(request)
        url = (await self._known_endpoints()).resource_manager
        tenant = self._tenant_of(request.target)
        if tenant not in self._tokens:
            self._tokens[tenant] = RenewedToken(partial(self._new_token, tenant))

        async def show(token: Token) -> tuple[Any, HttpResponse]:
            try:
                return await self.attempt(_shown(request, url, token))
            except Unauthenticated:
                self._has_no_token = True  # it may be for another audience than the cloud has
                raise

        return await self._tokens[tenant].use(show)

    def _tenant_of(self, target: str) -> str:
        config, scope = self._config, scope_of(target.partition("?")[0])
        is_networks = scope and scope.subscription == config.network_subscription.lower()
        has_another = config.network_subscription.lower() != config.subscription_id.lower()
        tenant = config.network_resource_tenant_id if is_networks and has_another else ""
        return tenant or config.tenant_id

    async def _follow(self, operation: str, response: HttpResponse) -> None:
        """Wait for the end of what was accepted; raises what it failed with."""
        place = response.header("Azure-AsyncOperation")
        has_status = bool(place)  # else the end is in the HTTP status
        if not place and response.status == 202:
            place = response.header("Location")
        if not place:
            return
        where, deadline = urlsplit(place), time.monotonic() + FOLLOWED
        if where.netloc != urlsplit((await self._known_endpoints()).resource_manager).netloc:
            raise CloudError(f"{operation}: the operation is on another host")
        look = Request("GetOperation", "network-read", "GET", f"{where.path}?{where.query}")
        while time.monotonic() < deadline:
            pause = max(response.retry_after or 0.0, POLL_INTERVAL)
            await asyncio.sleep(min(pause, LONGEST_POLL))
            answer, response = await self.exchange(look)
            match text(answer.get("status")):
                case "Succeeded":
                    return
                case "Failed" | "Canceled" as status:
                    raise failure(operation, status, mapping(answer.get("error")))
                case "" if has_status:
                    raise self.unreadable("GetOperation")
                case "" if response.status != 202:
                    return
        raise RetryAfter(f"{operation}: the operation is still in progress", BUSY_RETRY)

    # Tokens

    async def _known_endpoints(self) -> Endpoints:
        """Those of the cloud, as a Resource Manager of one's own reports them."""
        async with self._looking.held():
            if self._endpoints is None:
                url = self._config.resource_manager_endpoint
                look = Request("GetEndpoints", "identity", "GET", METADATA_TARGET, url=url)
                found, _ = await self.attempt(look)
                self._endpoints = read_endpoints(found, self._config)
            return self._endpoints

    async def _new_token(self, tenant: str) -> Token:
        """One of this tenant, asked for with the identity of now."""

        async def ask(known: Identity) -> Token:
            if self._has_no_token and self._config.resource_manager_endpoint:
                self._endpoints = None  # the login may be elsewhere by now
            self._has_no_token = True
            request = token_request(known, await self._known_endpoints(), tenant)
            try:
                answer, _ = await self.attempt(request)
            except Refused as error:  # 400 is Entra ID's word for most of what is wrong
                raise Unauthenticated(str(error)) from error
            self._has_no_token = False
            return read_token(answer)

        return await self._login.use(ask)

    async def _identity(self) -> Identity:
        """That of now, exchanged in the files or not."""
        try:
            self._config = self._read_config()
        except (ConfigurationFaults, OSError) as error:
            log.warning("the cloud configuration is not reloaded", extra={"why": str(error)})
        return read_identity(self._config)

    # What this cloud is like

    async def client(self, url: str) -> HttpClient:
        ca_file = self._config.ca_file if url.startswith("https:") else ""
        return self.connections(Server(url, ca_file))

    def result(self, operation: str, content: Any) -> Any:
        """Also a list: the endpoints of clouds."""
        return content if isinstance(content, list) else super().result(operation, content)

    def observe(self, response: HttpResponse) -> None:
        """What is left to the subscription, and to a group of operations within minutes."""
        for kind in ("reads", "writes"):
            left = response.header(f"{REMAINING}{kind}")
            if (calls := whole_number(left)) is not None:
                for budget in (item for item in QUOTAS if item.endswith(kind[:-1])):
                    self.gate.report_remaining(budget, calls, REFILL)
        windows = read_windows(response.header("x-ms-ratelimit-remaining-resource"))
        if least := min(windows, key=lambda item: item[0] / item[1], default=None):
            calls, window = least  # of one kind of reads only: none left may say nothing of others
            self.gate.report_remaining("compute-read", calls, window if calls else REFILL)

    def error_text(self, content: Any, response: HttpResponse) -> str:
        found = mapping(content)
        said = mapping(found.get("error"))
        code = text(said.get("code")) or text(found.get("error"))
        message = text(said.get("message")) or text(found.get("error_description"))
        return ": ".join(filter(None, (code, message))) or response.reason

    def error(self, message: str, content: Any, response: HttpResponse) -> CloudError:
        said = mapping(mapping(content).get("error"))
        code, details = text(said.get("code")), objects(said.get("details"))
        is_busy = code in BUSY and not any(TOO_MANY in text(item.get("code")) for item in details)
        match response.status:
            case 404 if not code:
                return CloudError(f"{message}: the answer is not {self.cloud}'s")
            case 404 if code in ELSEWHERE:
                return Elsewhere(message)
            case 401 if code == ANOTHER_TENANT:
                return Denied(message)
            case 412:
                return PreconditionFailed(message, RACE_RETRY)
            case 400 | 409 | 429 if is_busy:  # one resource, and not the account's rate
                return RetryAfter(message, response.retry_after or BUSY_RETRY)
            case 429:
                return Throttled(message, response.retry_after)
            case 400 | 403 | 409 if code.lower().endswith(FULL):
                return NoRoom(message)
            case 409 if "quota" in message.lower():
                return NoRoom(message)
            case 409:
                return Conflict(message)
        return super().error(message, content, response)


def read_windows(header: str) -> Iterator[tuple[int, float]]:
    """How many calls are left in how many seconds, as in `…/GetVM3Min;500,…/GetVM30Min;60`."""
    for item in header.split(","):
        group, _, written = item.partition(";")
        window, calls = _WINDOW.search(group), whole_number(written.strip())
        if window and calls is not None:
            yield calls, int(window[1]) * (60.0 if window[2] == "Min" else 1.0)


def _class_of(path: str) -> tuple[str, str]:
    """Whose calls those of a path in lower case are, and the version of the API."""
    provider, _, kinds = path.rpartition("/providers/")[2].partition("/")
    first, *rest = kinds.split("/")
    if provider != COMPUTE.lower():
        return "network", NETWORK_VERSION
    if {"networkinterfaces", "publicipaddresses"} & {*rest}:
        return "network", SET_NETWORK_VERSION
    return "compute", VERSIONS[f"{provider}/{first}".rstrip("/")]


def failure(operation: str, status: str, error: Mapping[str, Any]) -> CloudError:
    """What an operation that was accepted ended with: unlike a refusal it may go another time."""
    code = text(error.get("code")) or status
    message = f"{operation}: {status}: {code}: {text(error.get('message'))}"
    if code.lower().endswith(FULL):
        return NoRoom(message)
    return RetryAfter(message, BUSY_RETRY) if code in BUSY else CloudError(message)


def read_endpoints(answer: Any, config: AzureConfig) -> Endpoints:
    """The cloud's own, of all that a Resource Manager reports."""
    for record in objects(answer):
        if not config.cloud or text(record.get("name")).lower() == config.cloud.lower():
            known = mapping(record.get("authentication"))
            audiences = known.get("audiences")
            audience = text(audiences[0]) if isinstance(audiences, list) and audiences else ""
            login = text(known.get("loginEndpoint")).rstrip("/")
            if audience and login.startswith("https://"):
                return Endpoints(config.resource_manager_endpoint, login, audience)
    raise CloudError(f"GetEndpoints: the answer has no cloud {config.cloud!r} with its login")


def _shown(request: Request, url: str, token: Token) -> Request:
    headers = {"Authorization": f"Bearer {token.value}", **request.headers}
    return replace(request, url=url, headers=headers)
