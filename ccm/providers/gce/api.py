"""The way to the Compute API: one HTTP request at a time through the gate, changes awaited.

Operations are called as Google calls its methods (`instances.aggregatedList`), so that metrics,
quotas and permissions have one name. An SDK is not needed: see docs/decisions.
"""

import asyncio
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from ccm.cloud.credentials import Credentials, RenewedToken, is_shown
from ccm.cloud.interface import Gate, Quota
from ccm.cloud.json_api import JsonApi, Request, next_of, verify_about
from ccm.cloud.lookup import MAX_PARTS, verify_count
from ccm.cloud.shared_read import KeptRead
from ccm.errors import (
    CloudError,
    Conflict,
    Denied,
    NoRoom,
    NotFound,
    Refused,
    RetryAfter,
    Throttled,
    Unanswered,
    Unauthenticated,
)
from ccm.http import HttpResponse, request_target
from ccm.http_client import HttpClient
from ccm.model.objects import Json, mapping, number, objects, text
from ccm.providers.gce.config import (
    API_PATH,
    NETWORK_METADATA,
    GlobalSection,
    Place,
    missing_metadata,
    place_of,
)
from ccm.providers.gce.credentials import (
    ExternalAccount,
    Source,
    TokenRequest,
    metadata_server,
    read_source,
)
from ccm.providers.gce.ids import NAME, PROJECT, path_of_url
from ccm.tls import Server

READ, WRITE, OPERATION, IDENTITY = "read", "write", "operation", "identity"
QUOTAS = {
    READ: Quota(per_second=20.0, burst=40),
    WRITE: Quota(per_second=10.0, burst=20),
    OPERATION: Quota(per_second=5.0, burst=10),
    IDENTITY: Quota(per_second=2.0, burst=10),
}
"""Google counts by groups of methods, a project and a minute; these are below its defaults."""
PAGE = "500"
POLLS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0)  # seconds before each look at an operation; the last again
POLL_LIMIT = 45.0  # seconds of such looks; then it goes on in the queue
OPERATION_PATH = re.compile(
    rf"projects/{PROJECT}/(?:global|(zone|region)s/{NAME})/operations/[^/?#]{{1,200}}"
)
NETWORK_PATH = re.compile(rf"projects/[^/]+/networks/{NAME}")
"""What the metadata server says of a network."""
RACE_RETRY = 1.0  # seconds until what someone else changed, or is at work on, is read again
IDLE = "NO_RESULTS_ON_PAGE"
"""What a scope of an aggregated list warns of that has none; others cannot be reached."""


class InUse(Refused):
    """Something else refers to what was to be deleted."""


class AlreadyMember(Refused):
    """An instance is in the group already; of a batch none was added."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token, and for how many seconds it is good."""

    value: str = field(repr=False)
    lifetime: float


@dataclass(frozen=True, slots=True)
class Aggregated:
    """The records of all scopes, such as `zones/europe-west1-b`, and why one could not be read."""

    records: Mapping[str, Collection[Json]]
    failures: Mapping[str, str]


class GceApi(JsonApi):
    """Requests to the Compute API, each once, with a token that renews itself.

    Raises as any `JsonApi`, `NoRoom` for a quota, `InUse`, `AlreadyMember`, and `RetryAfter` for
    what is at work or was changed meanwhile.
    """

    cloud, ca_keys = "Google", "SSL_CERT_FILE"

    def __init__(self, section: GlobalSection, gate: Gate, caller: str) -> None:
        self._section, self._environment = section, dict(os.environ)
        self._login = Credentials(self._source, "the credentials of Google")
        self._tokens = RenewedToken(lambda: self._login.use(self._new_token))
        super().__init__(gate, caller, credentials=self._tokens)
        self.place = KeptRead(self._read_place)

    async def _read_place(self) -> Place:
        """Where the cluster is; the metadata server is asked for what the file leaves out.

        Twice: by one answer about another machine all load balancers would be made elsewhere.
        """
        known = await self._missing_metadata()
        if known != await self._missing_metadata():
            raise CloudError("GetMetadata: two answers differ: asked again")
        found, network = place_of(self._section, known), known.get(NETWORK_METADATA)
        has_network = network is None or NETWORK_PATH.fullmatch(network)
        has_place = re.fullmatch(PROJECT, found.project) and re.fullmatch(NAME, found.region)
        if not (has_network and has_place):
            raise CloudError("GetMetadata: the answer lacks a project, zone or network")
        return found

    async def _missing_metadata(self) -> Mapping[str, str]:
        server, asked = metadata_server(self._environment), missing_metadata(self._section)
        return {path: await self._metadata(server.request(path)) for path in asked}

    def url_of(self, path: str) -> str:
        """The URL of a resource, as others refer to it."""
        return f"{self._section.api_url}{API_PATH}/{path}"

    async def get(self, method: str, path: str, **query: str) -> Json:
        """The answer to a GET; paths begin with `projects/`."""
        found: Json = await self.request(_read(method, path, query))
        return found

    async def list(self, method: str, path: str, **query: str) -> Sequence[Json]:
        """The items of all pages; an empty list has no `items`."""
        return await self._items(_read(method, path, {"maxResults": PAGE, **query}))

    async def members(self, group: str) -> Sequence[Json]:
        """The instances of an instance group."""
        target = request_target(f"{API_PATH}/{group}/listInstances", {"maxResults": PAGE})
        method, body = "instanceGroups.listInstances", {"instanceState": "ALL"}
        return await self._items(Request(method, READ, "POST", target, body, changes_nothing=True))

    async def _items(self, request: Request) -> Sequence[Json]:
        found: list[Json] = []
        async for page in self.read_pages(request, _next_page):
            if "kind" not in page:  # so it is nothing of Google's, and not an empty list
                raise self.unreadable(request.operation)
            found += objects(page.get("items"))
            verify_count(request.operation, len(found))
        return found

    async def aggregated(self, collection: str, **query: str) -> Aggregated:
        """Those of all zones and regions of the project, one call for 500."""
        path = f"projects/{(await self.place()).project}/aggregated/{collection}"
        query = {"maxResults": PAGE, **query}
        method, records = f"{collection}.aggregatedList", dict[str, list[Json]]()
        failures = dict[str, str]()
        async for page in self.read_pages(_read(method, path, query), _next_page):
            items = page.get("items", {})
            if not isinstance(items, dict) or "kind" not in page:
                raise self.unreadable(method)
            for scope, found in items.items():
                records.setdefault(scope, []).extend(objects(mapping(found).get(collection)))
                warning = mapping(mapping(found).get("warning"))
                if warning and warning.get("code") != IDLE:
                    failures[scope] = f"{scope}: {text(warning.get('message'))}"
            for item in map(text, page.get("unreachables", ())):
                failures[item] = f"{item} is not reached"
            verify_count(method, sum(map(len, records.values())))
        return Aggregated(records, failures)

    async def change(self, method: str, verb: str, path: str, body: Json | None = None) -> Json:
        """Make a change, and return its operation once that is done.

        Each has an ID, so that a request whose answer was lost is sent again and done once. Raises
        what the operation failed with, and `RetryAfter` while it goes on for long.
        """
        target = request_target(f"{API_PATH}/{path}", {"requestId": str(uuid4())})
        request = Request(method, WRITE, verb, target, body)
        try:
            operation = await self.request(request)
        except Unanswered:
            operation = await self.request(request)
        return await self._done(method, operation)

    async def _done(self, method: str, operation: Json) -> Json:
        path = path_of_url(text(operation.get("selfLink")), "")
        found = OPERATION_PATH.fullmatch(path)
        if not found or "status" not in operation:
            raise self.unreadable(method)
        scope, waits = found[1] or "global", _waits()
        while operation.get("status") != "DONE":
            if (seconds := next(waits, None)) is None:
                raise RetryAfter(f"{method} is under way: {path}", POLLS[-1])
            await asyncio.sleep(seconds)
            look = f"{scope}Operations.get"
            operation = await self.request(Request(look, OPERATION, "GET", f"{API_PATH}/{path}"))
            verify_about(look, operation, "name", path.rpartition("/")[2])
        if errors := objects(mapping(operation.get("error")).get("errors"))[:MAX_PARTS]:
            said = "; ".join(
                f"{text(error.get('code'))} {text(error.get('message'))}" for error in errors
            )
            status = int(number(operation.get("httpErrorStatusCode")))
            codes = [text(error.get("code")) for error in errors]
            raise failure(f"{method}: {said}", status, codes) or CloudError(f"{method}: {said}")
        if operation.get("error") or operation.get("httpErrorStatusCode"):
            raise CloudError(f"{method}: the operation failed, and does not state why")
        return operation

    # Credentials

    def authorization(self, credentials: AccessToken) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {credentials.value}"}

    async def _source(self) -> Source:
        return read_source(self._section, self._environment)

    async def _new_token(self, source: Source) -> AccessToken:
        token = _read_token(await self._ask(source.request(), source.account))
        if isinstance(source, ExternalAccount) and source.impersonation_url:
            request = source.impersonation(token.value)
            token = _read_token(await self._ask(request, source.account))
        return token

    async def _ask(self, asked: TokenRequest, account: str) -> Any:
        """Google refuses an account by 400 `invalid_grant` as well as by 401."""
        url = urlsplit(asked.url)
        target, server = asked.url.partition(url.netloc)[2], f"{url.scheme}://{url.netloc}"
        request = Request(
            "GetToken", IDENTITY, asked.method, target, asked.body, asked.headers, server, True
        )
        try:
            answer, _ = await self.attempt(request)
        except (Denied, NotFound) as error:
            raise Unauthenticated(f"{account}: {error}") from error
        except Refused as error:
            raise Unauthenticated(f"{account} is refused: {error}") from error
        return answer

    async def _metadata(self, asked: TokenRequest) -> str:
        """A text of the metadata server, which speaks JSON where it is asked for."""
        url = urlsplit(asked.url)
        target = request_target(url.path, {"alt": "json"})
        server = f"{url.scheme}://{url.netloc}"
        request = Request("GetMetadata", IDENTITY, "GET", target, None, asked.headers, server)
        try:
            found, _ = await self.attempt(request)
        except CloudError as error:
            remedy = "give project-id, local-zone and network-name in [global] outside of Google"
            raise CloudError(f"{error}: {remedy}") from error
        return text(found)

    # What Google is like

    async def client(self, url: str) -> HttpClient:
        return self.connections(Server(url or self._section.api_url))

    def result(self, operation: str, content: Any) -> Any:
        if operation == "GetMetadata":
            return content
        return super().result(operation, content)

    def error_text(self, content: Any, response: HttpResponse) -> str:
        error = mapping(content).get("error")
        if isinstance(error, str):  # of a token server
            return f"{error} {text(mapping(content).get('error_description'))}"
        return text(mapping(error).get("message")) or response.reason

    def error(self, message: str, content: Any, response: HttpResponse) -> CloudError:
        found = objects(mapping(mapping(content).get("error")).get("errors"))[:MAX_PARTS]
        reasons = [text(item.get("reason")) for item in found]
        known = failure(message, response.status, reasons, response.retry_after)
        return known or super().error(message, content, response)


def failure(
    message: str, status: int, reasons: Collection[str], seconds: float | None = None
) -> CloudError | None:
    """What a refusal or an operation's error means; None where the status says it.

    Reasons are words of answers (`quotaExceeded`) and of operations (`QUOTA_EXCEEDED`).
    """
    known = {reason.replace("_", "").lower() for reason in reasons}
    if known & {"ratelimitexceeded", "userratelimitexceeded", "operationratelimitexceeded"}:
        return Throttled(message, seconds)
    if any(reason.endswith(("quotaexceeded", "limitexceeded")) for reason in known):
        return NoRoom(message)
    if "resourceinusebyanotherresource" in known:
        return InUse(message)
    if "memberalreadyexists" in known:
        return AlreadyMember(message)
    if known & {"resourcenotready", "conditionnotmet", "resourceoperationinprogress"}:
        return RetryAfter(message, RACE_RETRY)
    if known & {"resourcealreadyexists", "alreadyexists"}:
        return Conflict(message)
    if known & {"resourcenotfound", "membernotfound"}:
        return NotFound(message)
    if known & {"permissionserror", "forbidden"} and status != 401:
        return Denied(message)
    return RetryAfter(message, RACE_RETRY) if status == 412 else None


def _waits() -> Iterator[float]:
    """Seconds to wait before each look, until it has been enough."""
    spent, at = 0.0, 0
    while spent < POLL_LIMIT:
        seconds = POLLS[min(at, len(POLLS) - 1)]
        yield seconds
        spent, at = spent + seconds, at + 1


def _read(method: str, path: str, query: Mapping[str, str]) -> Request:
    return Request(method, READ, "GET", request_target(f"{API_PATH}/{path}", query))


def _next_page(page: Json) -> Mapping[str, str]:
    token = next_of(page, "nextPageToken")
    return {"pageToken": token} if token else {}


def _read_token(answer: Json) -> AccessToken:
    """The token in an OAuth server's answer, or in one of Google's form, which states a time."""
    value = text(answer.get("access_token")) or text(answer.get("accessToken"))
    try:
        ends = datetime.fromisoformat(text(answer.get("expireTime")))
        lifetime = (ends - datetime.now(UTC)).total_seconds()
    except (TypeError, ValueError):
        lifetime = number(answer.get("expires_in"))
    if not is_shown(value) or lifetime <= 0:
        raise CloudError("GetToken: the answer has no token, or none that is good now")
    return AccessToken(value, lifetime)
