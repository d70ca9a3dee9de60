"""The HTTP client of the simulated cloud: one call at a time through the gate, errors by status."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from ccm.cloud.interface import Gate
from ccm.errors import CloudError, Denied, NoRoom, Refused, RetryAfter, Throttled
from ccm.http import HttpClient, HttpResponse, request_target
from ccm.model.objects import Json, mapping, text
from ccm.providers.simulated.config import SimulatedConfig, read_token
from ccm.tls import Server


class NotFound(Refused):
    """The cloud's positive word that the one thing asked for by name does not exist."""


class Conflict(Refused):
    """What was to be created is there already, or something else is in its way."""


@dataclass(frozen=True, slots=True)
class LookupResult:
    """The answer to a query by ids or names: raw records, and what the cloud says is not there."""

    records: Sequence[object]
    not_found: frozenset[str]


class SimulatedApi:
    """The calls the provider needs. Every one is a single HTTP request, never retried in here.

    Raises `Denied` (401, 403), `Throttled` (429), `RetryAfter` (409 with a time: at work),
    `NotFound` (404), `Conflict` (other 409), `NoRoom` (a full quota), `Refused` (other 4xx), and
    `CloudError` for everything that is not an answer: 5xx, a timeout, a broken connection, a body
    that is not understood.
    """

    def __init__(self, config: SimulatedConfig, gate: Gate, caller: str) -> None:
        self._config, self._gate = config, gate
        self._token = config.token
        self._caller = caller
        self._http = HttpClient(Server(config.url))

    async def close(self) -> None:
        await self._http.close()

    async def look_up(
        self, operation: str, path: str, by: str, values: Sequence[str]
    ) -> LookupResult:
        """Records by `names` or `ids`, all pages of the answer; at most `page_size` values."""
        records: list[object] = []
        not_found: set[str] = set()
        async for page in self._pages(operation, path, {by: ",".join(values)}):
            missing = page.get("not_found")
            if not isinstance(missing, list):
                raise CloudError(f"{operation}: the answer lacks not_found")
            records += page["items"]
            not_found |= {name for name in missing if isinstance(name, str)}
        return LookupResult(records, frozenset(not_found))

    async def machines(self, by: str, values: Sequence[str]) -> LookupResult:
        """Machines by `names` or `ids`."""
        return await self.look_up("ListMachines", "/v1/machines", by, values)

    async def items(self, operation: str, path: str) -> list[object]:
        """The records of a list, from all its pages; raises rather than return a part."""
        return [item async for page in self._pages(operation, path, {}) for item in page["items"]]

    async def _pages(
        self, operation: str, path: str, query: Mapping[str, str]
    ) -> AsyncIterator[Json]:
        """The answers to one list, each with a list of `items`."""
        token, seen = "", set[str]()
        while token not in seen:
            seen.add(token)
            target = request_target(path, {**query, **({"page_token": token} if token else {})})
            page = _page(operation, await self.call(operation, "GET", target))
            yield page
            token = page.get("next_page_token") or ""
            if not token:
                return
        raise CloudError(f"the pages of {operation} go round in a circle")

    async def call(self, operation: str, method: str, target: str, body: object = None) -> Any:
        """The JSON of the answer, None when it has no body; GET spends the budget `read`."""
        is_write = method != "GET"
        content = b"" if body is None else orjson.dumps(body)
        return await self._gate.call(
            operation,
            "write" if is_write else "read",
            lambda: self._send(operation, method, target, content),
            is_write=is_write,
        )

    async def _send(self, operation: str, method: str, target: str, content: bytes) -> Any:
        headers = [
            ("User-Agent", "ccm-supervisor"),
            ("Accept", "application/json"),
            ("Authorization", f"Bearer {self._token}"),
            ("X-Caller", self._caller),
        ]
        try:
            async with asyncio.timeout(self._config.timeout):
                answer = await self._http.request(method, target, headers, content)
        except TimeoutError as late:
            message = f"{operation}: no answer within {self._config.timeout:g} s"
            raise CloudError(message) from late
        except (OSError, ValueError) as broken:
            raise CloudError(f"{operation}: {type(broken).__name__}: {broken}") from broken
        if answer.status == 401:
            self._reload_token()
        return _read(operation, answer)

    def _reload_token(self) -> None:
        """Take up a token that was exchanged on disk, for the next call."""
        if self._config.token_file:
            with contextlib.suppress(OSError, ValueError):
                self._token = read_token(self._config.token_file)


def _read(operation: str, answer: HttpResponse) -> Any:
    """The JSON of a success; raises what any other status means."""
    status, content = answer.status, answer.body
    if 200 <= status < 300:
        try:
            return orjson.loads(content) if content else None
        except orjson.JSONDecodeError as garbage:
            raise CloudError(f"{operation}: the answer is not JSON: {garbage}") from garbage
    error = _error(content)
    code = text(error.get("code"))
    message = f"{operation}: {status} {code}: {text(error.get('message'))}"
    wait = answer.retry_after
    if status in (401, 403):
        raise Denied(message)
    if status == 429:
        raise Throttled(message, wait)
    if status == 409 and wait is not None:
        raise RetryAfter(message, wait)
    if status == 404 and code == "NotFound":
        raise NotFound(message)
    if status == 409:
        raise Conflict(message)
    if code == "QuotaExceeded":
        raise NoRoom(message)
    if 400 <= status < 500 and status != 408:
        raise Refused(message)
    raise CloudError(message)


def _error(content: bytes) -> Mapping[str, Any]:
    try:
        return mapping(mapping(orjson.loads(content)).get("error"))
    except orjson.JSONDecodeError:
        return {}


def _page(operation: str, answer: object) -> Json:
    """One page of a list."""
    page: Json = dict(mapping(answer))
    if not isinstance(page.get("items"), list):
        raise CloudError(f"{operation}: the answer lacks items")
    if not isinstance(page.get("next_page_token"), str | None):
        raise CloudError(f"{operation}: the token of the next page is not text")
    return page
