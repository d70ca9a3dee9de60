"""The way to DigitalOcean's API: one HTTP request at a time through the gate.

Every answer says how many calls the token has left, with everybody else who uses it: the budget
goes by that.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlencode

import orjson

from ccm import __version__
from ccm.cloud.interface import Gate, Quota
from ccm.cloud.reloading import ReloadingClient, what_broke
from ccm.errors import CloudError, Denied, NoRoom, Refused, RetryAfter, Throttled
from ccm.http import HttpResponse
from ccm.model.objects import Json, mapping, objects, text
from ccm.printable import printable
from ccm.providers.digitalocean.config import TOKEN, GlobalSection
from ccm.tls import Server

API = "api"
HOURLY, BURST = 5000, 200  # of one token: 5,000 an hour and 250 a minute, whatever the call
PAGE = 200
BALANCER_PAGE = 50  # each of them lists its droplets; longer answers fail (upstream's #795)
MAX_PAGES = 500
BUSY = "while it processes previous actions"
FULL = ("limit exceeded", "exceeds your", "reached the limit", "limit reached")
BUSY_RETRY = 15.0  # seconds
MAX_SAID = 300  # characters of an error


Query = str | Sequence[str]


class NotFound(Refused):
    """The API has nothing of that ID, as far as this token may see."""


@dataclass(slots=True)
class Listed:
    """All records of a list, by ID; `doubts` are why something may be missing in it."""

    by_id: dict[str | int, Json] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)

    @property
    def records(self) -> list[Json]:
        return list(self.by_id.values())


def quotas(section: GlobalSection) -> dict[str, Quota]:
    """What the token may do, or the rate in the configuration."""
    rate = section.calls_per_second or HOURLY / 3600
    return {API: Quota(per_second=rate, burst=BURST)}


class DigitalOceanApi:
    """Raises `Denied`, `NotFound`, `Throttled`, `Refused` (what it will never take), `NoRoom`,
    `RetryAfter` while it is at work on the thing, and `CloudError` for everything else: no answer,
    an unreadable one, errors of the server.
    """

    def __init__(self, section: GlobalSection, gate: Gate, caller: str) -> None:
        self._section, self._gate = section, gate
        self._agent = f"ccm-supervisor/{__version__} {caller}"
        self._client = ReloadingClient(Server(section.api_url, section.ca_file))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def get(self, operation: str, path: str, **query: Query) -> Json:
        """The answer to a GET."""
        return await self._call(operation, "GET", _with_query(path, query))

    async def write(self, operation: str, method: str, path: str, body: Json | None = None) -> Json:
        """The answer to a request that changes something; empty when it has none."""
        return await self._call(operation, method, path, orjson.dumps(body) if body else b"")

    async def list(
        self, operation: str, path: str, key: str, per_page: int = PAGE, **query: Query
    ) -> Listed:
        """All pages, which end where there is no next one; addresses in answers are not followed.

        Something that goes meanwhile moves the rest, and one may fall between two pages: the total
        tells.
        """
        found, seen, totals = Listed(), 0, set[object]()
        for page in range(1, MAX_PAGES + 1):
            answer = await self.get(
                operation, path, **query, page=str(page), per_page=str(per_page)
            )
            records = answer.get(key)
            if not isinstance(records, list):
                raise CloudError(f"{operation}: the answer has no {key}")
            seen += len(records)
            found.by_id |= {_id_of(operation, record): record for record in objects(records)}
            totals.add(mapping(answer.get("meta")).get("total"))
            if not text(mapping(mapping(answer.get("links")).get("pages")).get("next")):
                break
        else:
            raise CloudError(f"{operation}: more than {MAX_PAGES} pages")
        if totals != {seen} or len(found.by_id) != seen:
            found.doubts.append(
                f"{operation}: {len(found.by_id)} were listed, and there are others"
            )
        return found

    async def _call(self, operation: str, method: str, path: str, body: bytes = b"") -> Json:
        is_read = method == "GET"

        async def send() -> Json:
            headers = {
                "Authorization": f"Bearer {self._token(operation)}",
                "User-Agent": self._agent,
                "Content-Type": "application/json",
            }
            try:
                http = self._client.current()
                answer = await http.request(
                    method, f"/v2{path}", headers.items(), body, may_retry=is_read
                )
            except (OSError, ValueError) as broken:
                why = what_broke(broken, "[Global] ca-file")
                raise CloudError(f"{operation}: {why}") from broken
            if left := remaining(answer):
                self._gate.report_remaining(API, *left)
            return read_answer(operation, answer)

        return await self._gate.call(operation, API, send, is_write=not is_read)

    def _token(self, operation: str) -> str:
        """As its file has it now."""
        section = self._section
        if not section.token_file:
            return section.token
        try:
            token = Path(section.token_file).read_text().strip()
        except (OSError, ValueError) as wrong:
            raise Denied(f"{operation}: the token cannot be read: {wrong}") from wrong
        if not TOKEN.fullmatch(token):
            raise Denied(f"{operation}: {section.token_file} holds no token")
        return token


def _with_query(path: str, query: Mapping[str, Query]) -> str:
    return f"{path}?{urlencode(query, doseq=True)}" if query else path


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
    except (TypeError, ValueError):
        return time.time()


def read_answer(operation: str, answer: HttpResponse) -> Json:
    """The object in a success; raises what anything else means."""
    try:
        content = orjson.loads(answer.body or b"{}")
    except orjson.JSONDecodeError:
        content = None
    if not 200 <= answer.status < 300:
        said = text(mapping(content).get("message")) or answer.reason
        message = printable(f"{operation}: {answer.status} {said}"[:MAX_SAID])
        if answer.status == 404 and not text(mapping(content).get("id")):
            raise CloudError(f"{message}: the answer is none of DigitalOcean's")
        raise to_cloud_error(message, answer)
    if not isinstance(content, dict):
        raise CloudError(f"{operation}: the answer is none of DigitalOcean's")
    return content


def to_cloud_error(message: str, answer: HttpResponse) -> CloudError:
    """What an error means for the caller."""
    status = answer.status
    if status == 403 and BUSY in message:
        return RetryAfter(message, BUSY_RETRY)
    if status in (401, 403):
        return Denied(message)
    if status == 404:
        return NotFound(message)
    if status == 429:
        left = remaining(answer)
        return Throttled(message, answer.retry_after or (left[1] if left else None))
    if status == 422 and any(words in message.lower() for words in FULL):
        return NoRoom(message)
    return Refused(message) if 400 <= status < 500 else CloudError(message)


def _id_of(operation: str, record: Mapping[str, object]) -> str | int:
    found = record.get("id")
    if not isinstance(found, str | int):
        raise CloudError(f"{operation}: a record has no ID")
    return found
