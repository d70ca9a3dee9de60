"""The log of requests, so that a test can count who wrote what."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

# The status of a request whose connection went before it was answered.
NO_ANSWER = 0

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True, slots=True)
class Request:
    """One answered request; a watch is logged when its stream begins."""

    verb: str
    path: str
    query: str
    resource: str
    subresource: str
    namespace: str
    name: str
    user_agent: str
    content_type: str
    status: int
    seconds: float

    @property
    def is_write(self) -> bool:
        return self.verb in WRITES


class Requests:
    """The latest requests, oldest first."""

    def __init__(self, limit: int = 100_000) -> None:
        self._kept: deque[Request] = deque(maxlen=limit)

    def __iter__(self) -> Iterator[Request]:
        return iter(tuple(self._kept))

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, request: Request) -> None:
        self._kept.append(request)

    def clear(self) -> None:
        self._kept.clear()

    def select(self, *, writes: bool = False, user_agent: str = "", **wanted: str) -> list[Request]:
        """Return the requests with these fields; of the user agent a part is enough."""
        return [
            request
            for request in self._kept
            if (request.is_write or not writes)
            and user_agent in request.user_agent
            and all(getattr(request, name) == value for name, value in wanted.items())
        ]
