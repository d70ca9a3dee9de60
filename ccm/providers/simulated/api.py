"""The HTTP client of the simulated cloud: one call at a time through the gate, errors by status."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from ccm.cloud.interface import Gate
from ccm.errors import CloudError, Denied, Refused, RetryAfter, Throttled
from ccm.model.objects import Json, mapping, text
from ccm.providers.simulated.config import SimulatedConfig, read_token

IDLE_SECONDS = 15.0
"""How long a connection is kept for the next call: shorter than servers do, see `_new_session`."""


class Absent(Refused):
    """The cloud's positive word that the one thing asked for by name does not exist."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call: its name in metrics, the class of the budget it spends, and what is sent."""

    operation: str
    budget: str
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: object = None


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to a question about certain machines: raw records, and who surely is not there."""

    records: Sequence[object]
    absent: frozenset[str]


class SimulatedApi:
    """The calls the provider needs. Every one is a single HTTP request, never retried in here.

    Raises `Denied` (401, 403), `Throttled` (429), `RetryAfter` (409 with a time: at work),
    `Absent` (404), `Refused` (other 4xx, a full quota too), and `CloudError` for everything that is
    not an answer: 5xx, a timeout, a broken connection, a body that is not understood.
    """

    def __init__(self, config: SimulatedConfig, gate: Gate, caller: str) -> None:
        self._config, self._gate = config, gate
        self._token = config.token
        self._caller = caller
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session:
            await self._session.close()
            self._session = None

    async def machines(self, by: str, values: Sequence[str]) -> Found:
        """Machines by `names` or `ids`, all pages of the answer; at most `page_size` values."""
        records: list[object] = []
        absent: set[str] = set()
        query, seen = {by: ",".join(values)}, set()
        while True:
            answer = await self.call(Call("ListMachines", "read", "GET", "/v1/machines", query))
            items, missing, token = _page(answer)
            records += items
            absent |= missing
            if not token:
                return Found(records, frozenset(absent))
            if token in seen:
                raise CloudError("the pages of ListMachines go round in a circle")
            seen.add(token)
            query = {**query, "page_token": token}

    async def call(self, call: Call) -> Any:
        """The JSON of the answer to one call; None when it has no body."""
        return await self._gate.call(call.operation, call.budget, lambda: self._send(call))

    async def _send(self, call: Call) -> Any:
        if self._session is None:
            self._session = _new_session(self._config.timeout)
        try:
            async with self._session.request(
                call.method,
                self._config.url + call.path,
                params=call.query,
                data=None if call.body is None else orjson.dumps(call.body),
                headers={"Authorization": f"Bearer {self._token}", "X-Caller": self._caller},
                allow_redirects=False,
            ) as response:
                content = await response.read()
        except TimeoutError as late:
            message = f"{call.operation}: no answer within {self._config.timeout:g} s"
            raise CloudError(message) from late
        except (aiohttp.ClientError, OSError, ValueError) as broken:
            raise CloudError(f"{call.operation}: {type(broken).__name__}: {broken}") from broken
        if response.status == 401:
            self._reload_token()
        return _read(call.operation, response.status, response.headers, content)

    def _reload_token(self) -> None:
        """Take up a token that was exchanged on disk, for the next call."""
        if self._config.token_file:
            with contextlib.suppress(OSError, ValueError):
                self._token = read_token(self._config.token_file)


def _new_session(timeout: float) -> aiohttp.ClientSession:
    session = aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=timeout),
        connector=aiohttp.TCPConnector(keepalive_timeout=IDLE_SECONDS),
        headers={"User-Agent": "ccm-supervisor"},
    )
    # aiohttp repeats a GET on a kept connection that broke, which the gate would not count; there
    # is no public switch. Closing idle connections early keeps such breaks rare.
    session._retry_connection = False
    return session


def _read(operation: str, status: int, headers: Mapping[str, str], content: bytes) -> Any:
    """The JSON of a success; raises what any other status means."""
    if 200 <= status < 300:
        try:
            return orjson.loads(content) if content else None
        except orjson.JSONDecodeError as garbage:
            raise CloudError(f"{operation}: the answer is not JSON: {garbage}") from garbage
    error = _error(content)
    code = text(error.get("code"))
    message = f"{operation}: {status} {code}: {text(error.get('message'))}"
    wait = _seconds(headers.get("Retry-After"))
    if status in (401, 403):
        raise Denied(message)
    if status == 429:
        raise Throttled(message, wait)
    if status == 409 and wait is not None:
        raise RetryAfter(message, wait)
    if status == 404 and code == "NotFound":
        raise Absent(message)
    if 400 <= status < 500 and status != 408:
        raise Refused(message)
    raise CloudError(message)


def _error(content: bytes) -> Mapping[str, Any]:
    try:
        return mapping(mapping(orjson.loads(content)).get("error"))
    except orjson.JSONDecodeError:
        return {}


def _seconds(value: str | None) -> float | None:
    """The seconds of a Retry-After header; None when it has none or another form."""
    try:
        seconds = float(value or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < math.inf else None


def _page(answer: object) -> tuple[list[object], set[str], str]:
    """The records, the absent and the token of the next page in one answer."""
    body: Json = dict(mapping(answer))
    items, absent, token = body.get("items"), body.get("not_found"), body.get("next_page_token")
    if not isinstance(items, list) or not isinstance(absent, list):
        raise CloudError("ListMachines: the answer lacks items or not_found")
    if not isinstance(token, str | None):
        raise CloudError("ListMachines: the token of the next page is not text")
    return items, {name for name in absent if isinstance(name, str)}, token or ""
