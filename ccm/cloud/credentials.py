"""Who we are to a cloud: read again when it changed and when it was refused; a pause once refused.

Whatever a cloud takes - a token, a user and a password, keys - is one value that can be compared.
A value that was refused is not shown again until it changes or a growing pause is over: others use
the account as well, and many a cloud locks it.
"""

import asyncio
import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Generic, TypeVar

from ccm.cloud.secret_text import SecretText
from ccm.decide.backoff import Backoff
from ccm.errors import Denied, Refused, Unauthenticated

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

TOKEN_PAUSE = Backoff(first=5.0, most=60.0)
PASSWORD_PAUSE = Backoff(first=30.0, most=900.0)
"""Of an account that wrong passwords lock, for everybody who uses it."""


def credentials_of(*texts: SecretText) -> "Credentials[tuple[str, ...]]":
    """Those that are these texts together."""

    async def read() -> tuple[str, ...]:
        return tuple(text.read() if text.file else text.value for text in texts)

    names, places = [text.name for text in texts], [text.place for text in texts]
    return Credentials(read, " and ".join(names), " and ".join(places))


class RefusalPause(Generic[T]):
    """Keeps credentials that a cloud refused from being shown again too soon; for threads, too."""

    def __init__(
        self,
        keys: str,
        backoff: Backoff = TOKEN_PAUSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keys, self._backoff, self._clock = keys, backoff, clock
        self._refused: T | None = None
        self._error = Unauthenticated("")
        self._since = self._until = 0.0
        self._times = 0
        self._lock = threading.Lock()

    def check(self, credentials: T) -> None:
        """Raise `Unauthenticated` in the pause. Who comes first after it may show them again."""
        with self._lock:
            if credentials != self._refused:
                return
            if self._clock() < self._until:
                raise Unauthenticated(str(self._error), self._error.source)
            self._begin_pause()

    def refused(self, credentials: T, error: Unauthenticated) -> Unauthenticated:
        """The cloud refused them: the error to raise, which says since when, and what to do."""
        with self._lock:
            if credentials != self._refused:
                self._refused, self._since, self._times = credentials, self._clock(), 0
                self._begin_pause()
                since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                remedy = f"correct {self._keys}, or allow it in the cloud"
                message = f"{error} (refused since {since}; {remedy})"
                self._error = Unauthenticated(message, error.source)
                extra = {"why": message, "place": error.source}
                log.error("the cloud refuses the credentials", extra=extra)
            return Unauthenticated(str(self._error), self._error.source)

    def accepted(self, credentials: T) -> None:
        """The cloud took them."""
        with self._lock:
            if self._refused is not None:
                self._refused = None
                seconds = round(self._clock() - self._since, 1)
                log.info("the cloud takes the credentials", extra={"refused_seconds": seconds})

    def _begin_pause(self) -> None:
        self._times += 1
        self._until = self._clock() + self._backoff.delay(self._times, random.random())


class Credentials(Generic[T]):
    """The credentials of one account: `read` gives those of now, in no time or as they come.

    `keys` of the configuration name them in errors; `place` tells an operator where they are.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[T]],
        keys: str,
        place: str = "",
        backoff: Backoff = TOKEN_PAUSE,
    ) -> None:
        self._read, self._place = read, place or keys
        self._pause = RefusalPause[T](keys, backoff)
        self._first = asyncio.Lock()
        self._shown: T | None = None

    async def use(self, call: Callable[[T], Awaitable[R]]) -> R:
        """What `call` gives with the credentials of now.

        `call` raises `Unauthenticated` when the cloud refuses them, of which nothing was done:
        where they changed meanwhile, it is made again with those.
        """
        credentials = await self._read()
        self._pause.check(credentials)
        try:
            return await self._show(credentials, call)
        except Unauthenticated:
            changed = await self._read()
            if changed == credentials:
                raise
        return await self._show(changed, call)

    async def _show(self, credentials: T, call: Callable[[T], Awaitable[R]]) -> R:
        """One call alone shows what was not shown before; the others wait for its end."""
        if credentials != self._shown:
            async with self._first:
                if credentials != self._shown:
                    try:
                        return await self._call(credentials, call)
                    finally:
                        self._shown = credentials
            self._pause.check(credentials)
        return await self._call(credentials, call)

    async def _call(self, credentials: T, call: Callable[[T], Awaitable[R]]) -> R:
        try:
            result = await call(credentials)
        except Unauthenticated as error:
            error.source = error.source or self._place
            raise self._pause.refused(credentials, error) from error
        except (Denied, Refused):
            self._pause.accepted(credentials)
            raise
        self._pause.accepted(credentials)
        return result
