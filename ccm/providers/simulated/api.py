"""The HTTP client of the simulated cloud: one call at a time through the gate, errors by status."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ccm.cloud.credentials import credentials_of
from ccm.cloud.interface import Gate
from ccm.cloud.json_api import JsonApi, Request, next_of, read_list
from ccm.errors import CloudError, NoRoom, Refused, RetryAfter
from ccm.http import HttpResponse, request_target
from ccm.model.objects import Json, mapping, text
from ccm.providers.simulated.config import SimulatedConfig
from ccm.tls import Server


@dataclass(frozen=True, slots=True)
class LookupResult:
    """The answer to a query by ids or names: raw records, and what the cloud says is not there."""

    records: Sequence[object]
    not_found: frozenset[str]


class SimulatedApi(JsonApi):
    """Raises as any `JsonApi`, `RetryAfter` (409 with a time: at work) and `NoRoom` (a full quota).

    A GET spends the budget `read`, all else `write`.
    """

    cloud, ca_keys = "the simulated cloud", "one that this machine trusts"

    def __init__(self, config: SimulatedConfig, gate: Gate, caller: str) -> None:
        server, credentials = Server(config.url), credentials_of(config.secret)
        super().__init__(gate, caller, server, credentials=credentials, timeout=config.timeout)
        self._caller = caller

    async def look_up(
        self, operation: str, path: str, by: str, values: Sequence[str]
    ) -> LookupResult:
        """Records by `names` or `ids`, all pages of the answer; at most `page_size` values."""
        records: list[object] = []
        not_found: set[str] = set()
        async for page in self._list_pages(operation, path, {by: ",".join(values)}):
            missing = read_list(operation, page, "not_found")
            records += page["items"]
            not_found |= {name for name in missing if isinstance(name, str)}
        return LookupResult(records, frozenset(not_found))

    async def machines(self, by: str, values: Sequence[str]) -> LookupResult:
        """Machines by `names` or `ids`."""
        return await self.look_up("ListMachines", "/v1/machines", by, values)

    async def items(self, operation: str, path: str) -> list[object]:
        """The records of a list, from all its pages; raises rather than return a part."""
        return [
            item async for page in self._list_pages(operation, path, {}) for item in page["items"]
        ]

    async def write(self, operation: str, method: str, target: str, body: object = None) -> Any:
        """The JSON of the answer, None when it has no body."""
        return await self.request(Request(operation, "write", method, target, body))

    async def _list_pages(
        self, operation: str, path: str, query: Mapping[str, str]
    ) -> AsyncIterator[Json]:
        """The answers to one list, each with a list of `items`."""
        target = request_target(path, query)
        async for answer in self.read_pages(Request(operation, "read", "GET", target), _next_page):
            page: Json = dict(mapping(answer))
            read_list(operation, page, "items")
            yield page

    def authorization(self, credentials: tuple[str]) -> Mapping[str, str]:
        return {**super().authorization(credentials), "X-Caller": self._caller}

    def error_text(self, content: Any, response: HttpResponse) -> str:
        return f"{_code(content)}: {text(_error(content).get('message'))}"

    def error(self, message: str, content: Any, response: HttpResponse) -> CloudError:
        wait, code = response.retry_after, _code(content)
        match response.status:
            case 409 if wait is not None:
                return RetryAfter(message, wait)
            case 404 if code != "NotFound":
                return Refused(message)
            case 422 if code == "QuotaExceeded":
                return NoRoom(message)
        return super().error(message, content, response)

    def result(self, operation: str, content: Any) -> Any:
        return content


def _error(content: Any) -> Mapping[str, Any]:
    return mapping(mapping(content).get("error"))


def _code(content: Any) -> str:
    return text(_error(content).get("code"))


def _next_page(page: Any) -> Mapping[str, str]:
    token = next_of(mapping(page), "next_page_token")
    return {"page_token": token} if token else {}
