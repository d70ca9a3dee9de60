"""The way to DigitalOcean's API: one HTTP request at a time through the gate.

Every answer says how many calls the token has left, with all others that use it: the budget
goes by that.
"""

import math
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from itertools import count
from typing import Any

from ccm.cloud.credentials import credentials_of
from ccm.cloud.interface import Gate, Quota
from ccm.cloud.json_api import JsonApi, Request, read_list
from ccm.cloud.lookup import verify_count
from ccm.cloud.machines import Listing
from ccm.errors import CloudError, Conflict, NoRoom, RetryAfter, Throttled
from ccm.http import HttpResponse, request_target
from ccm.model.objects import Json, mapping, objects, text
from ccm.providers.digitalocean.config import GlobalSection
from ccm.tls import Server

API = "api"
HOURLY, BURST = 5000, 200  # of one token: 5,000 an hour and 250 a minute, whatever the call
PAGE = 200
BALANCER_PAGE = 50  # each of them lists its droplets; longer answers fail (upstream's #795)
BUSY = "while it processes previous actions"
FULL = ("limit exceeded", "exceeds your", "reached the limit", "limit reached")
BUSY_RETRY = 15.0  # seconds
NOT_UNIQUE = "not unique"
BALANCERS = "/load_balancers"


Query = str | Sequence[str]


Listed = Listing[str | int, Json]
"""All records of a list."""


def quotas(section: GlobalSection) -> dict[str, Quota]:
    """What the token may do, or the rate in the configuration."""
    rate = section.calls_per_second or HOURLY / 3600
    return {API: Quota(per_second=rate, burst=BURST)}


class DigitalOceanApi(JsonApi):
    """Raises as any `JsonApi`, `NoRoom`, and `RetryAfter` while it is at work on the thing."""

    cloud, ca_keys = "DigitalOcean", "[Global] ca-file"

    def __init__(self, section: GlobalSection, gate: Gate, caller: str) -> None:
        server, credentials = (
            Server(section.api_url, section.ca_file),
            credentials_of(section.secret),
        )
        super().__init__(gate, caller, server, credentials=credentials)

    async def get(self, operation: str, path: str, **query: Query) -> Json:
        """The answer to a GET."""
        answer: Json = await self.request(_read(operation, path, query))
        return answer

    async def write(self, operation: str, method: str, path: str, body: Json | None = None) -> Json:
        """The answer to a request that changes something; empty when it has none."""
        answer: Json = await self.request(Request(operation, API, method, f"/v2{path}", body))
        return answer

    async def list(
        self, operation: str, path: str, key: str, per_page: int = PAGE, **query: Query
    ) -> Listed:
        """All pages, which end where there is no next one.

        Something that goes meanwhile moves the rest, and one may fall between two pages: the total
        shows it. So does a record without an ID, which is left out.
        """
        found, seen, totals, numbers = Listed(), 0, set[object](), count(2)

        def next_page(page: Json) -> Mapping[str, str]:
            is_more = text(mapping(mapping(page.get("links")).get("pages")).get("next"))
            return {"page": str(next(numbers))} if is_more else {}

        first = _read(operation, path, {**query, "page": "1", "per_page": str(per_page)})
        async for page in self.read_pages(first, next_page):
            records = read_list(operation, page, key)
            seen += len(records)
            verify_count(operation, seen)
            found.by_id |= {
                found_id: record for record in objects(records) if (found_id := _id_of(record))
            }
            totals.add(mapping(page.get("meta")).get("total"))
        if totals != {seen} or len(found.by_id) != seen:
            found.incomplete_reasons.append(
                f"{operation}: {len(found.by_id)} were listed, and there are others"
            )
        return found

    async def balancers(self) -> Sequence[Json]:
        """All load balancers, never a part."""
        listed = await self.list("ListLoadBalancers", BALANCERS, "load_balancers", BALANCER_PAGE)
        listed.verify_complete()
        return listed.records

    def observe(self, response: HttpResponse) -> None:
        if left := remaining(response):
            self.gate.report_remaining(API, *left)

    def error(self, message: str, content: Any, response: HttpResponse) -> CloudError:
        match response.status:
            case 403 if BUSY in message:
                return RetryAfter(message, BUSY_RETRY)
            case 404 if not text(mapping(content).get("id")):
                return CloudError(f"{message}: the answer is not DigitalOcean's")
            case 422 if any(words in message.lower() for words in FULL):
                return NoRoom(message)
            case 422 if NOT_UNIQUE in message:
                return Conflict(message)
            case 429:
                left = remaining(response)
                return Throttled(message, response.retry_after or (left[1] if left else None))
        return super().error(message, content, response)


def _read(operation: str, path: str, query: Mapping[str, Query]) -> Request:
    return Request(operation, API, "GET", request_target(f"/v2{path}", query))


def remaining(answer: HttpResponse) -> tuple[int, float] | None:
    """How many calls are left, and in how many seconds there is one more."""
    try:
        calls = int(answer.header("ratelimit-remaining"))
        until = float(answer.header("ratelimit-reset"))
    except ValueError:
        return None
    seconds = until - _now(answer)
    return (max(calls, 0), max(seconds, 0.0)) if math.isfinite(seconds) else None


def _now(answer: HttpResponse) -> float:
    """By the server's clock, which its times are of."""
    try:
        return parsedate_to_datetime(answer.header("date")).timestamp()
    except (TypeError, ValueError, OverflowError):
        return time.time()


def _id_of(record: Mapping[str, object]) -> str | int:
    """Empty where it has none."""
    found = record.get("id")
    return found if isinstance(found, str | int) else ""
