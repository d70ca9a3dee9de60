"""Who we are to a cloud: read again when it changed and when it was refused; a pause once refused.

Whatever a cloud takes - a token, a user and a password, keys - is one value that can be compared.
A value that was refused is not shown again until it changes or a growing pause is over: others use
the account as well, and many a cloud locks it.
"""

import logging
import random
import re
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from ccm.cloud.sections import Faults
from ccm.cloud.shared_read import SharedLock
from ccm.decide.backoff import Backoff
from ccm.directories import read_bounded
from ccm.errors import CloudError, Denied, Refused, Unauthenticated
from ccm.redaction import MIN_SECRET, register_secrets

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

RENEW_AT = 0.8  # of a token's life
LONGEST_LIFE = 3600.0  # seconds for which one is used, good for longer or not: it may be useless
MIN_TOKEN = 16  # characters; what is redacted everywhere is no word
MAX_TOKEN = 32 << 10  # characters; servers take less in all headers together

TOKEN_PAUSE = Backoff(first=5.0, most=60.0)
PASSWORD_PAUSE = Backoff(first=30.0, most=900.0)
"""Of an account that wrong passwords lock, for all who use it."""

REMEDY = "write the credential into it, on one line"
TOKEN = re.compile(r"[!-~]+")
"""What can stand in a header: ASCII without spaces."""
PASSWORD = re.compile(r"[^\x00-\x1f\x7f]+")
"""One line."""


def read_secret(file: str | Path, form: re.Pattern[str] = TOKEN) -> str:
    """The secret in a file, without the line break at its end; registered, so that none shows it.

    Raises `ValueError` with the problem, which names no path: tenants may read it.
    """
    try:
        text = read_bounded(Path(file)).decode().strip("\r\n")
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise ValueError("is not text") from None
    if form is not PASSWORD:
        text = text.strip()
    if not text:
        raise ValueError("is empty")
    if not form.fullmatch(text):
        spaces = "" if form is PASSWORD else " and spaces"
        raise ValueError(f"has another form than one line without control characters{spaces}")
    register_secrets(text)
    return text


@dataclass(frozen=True, slots=True)
class SecretText:
    """A text of the credentials: the `value` at a `key` of the configuration, or what `file` has.

    The key of the file is the other one with the `suffix`.
    """

    key: str
    value: str = field(default="", repr=False)
    file: str = ""
    form: re.Pattern[str] = TOKEN
    suffix: str = "-file"

    @property
    def name(self) -> str:
        """The key that is given."""
        return self.key + self.suffix if self.file else self.key

    @property
    def place(self) -> str:
        """Where an operator finds the text."""
        return f"{self.name} {self.file}".strip()

    def read(self) -> str:
        """The text now; raises `Unauthenticated`."""
        if not self.file:
            return self.value
        try:
            return read_secret(self.file, self.form)
        except ValueError as problem:
            message = f"{self.name}: the file {problem}; {REMEDY}"
            raise Unauthenticated(message, self.place) from problem

    def check(self, faults: Faults, remedy: str, section: str = "") -> None:
        """Record unless there is either the value, in this section, or a file that has one."""
        key = f"{section} {self.key}".strip()
        is_given, file_key = key in faults.origins, key + self.suffix
        if is_given and self.file:
            faults.add(key, "is given twice", remedy)
        elif not is_given and not self.file:
            faults.add(file_key, "is missing", remedy)
        elif self.file:
            try:
                read_secret(self.file, self.form)
            except ValueError as problem:
                faults.add(file_key, str(problem), REMEDY)


def credentials_of(*texts: SecretText) -> "Credentials[tuple[str, ...]]":
    """Those that are these texts together."""

    async def read() -> tuple[str, ...]:
        return tuple(text.read() for text in texts)

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
        self._times, self._is_tried = 0, False
        self._lock = threading.Lock()

    def check(self, credentials: T) -> None:
        """Raise `Unauthenticated` in the pause. Who comes first after it may show them again."""
        with self._lock:
            if credentials != self._refused:
                return
            if self._clock() < self._until:
                raise Unauthenticated(str(self._error), self._error.source)
            self._is_tried = True
            self._begin_pause()

    def refused(self, credentials: T, error: Unauthenticated) -> Unauthenticated:
        """The cloud refused them: the error to raise, which says since when, and what to do."""
        with self._lock:
            if credentials != self._refused:
                self._refused, self._since, self._times = credentials, self._clock(), 1
                self._begin_pause()
                since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                remedy = f"correct {self._keys}, or allow it in the cloud"
                message = f"{error} (refused since {since}; {remedy})"
                self._error = Unauthenticated(message, error.source)
                extra = {"why": message, "place": error.source}
                log.error("the cloud refuses the credentials", extra=extra)
            elif self._is_tried:
                self._times += 1
                self._begin_pause()
            self._is_tried = False
            return Unauthenticated(str(self._error), self._error.source)

    def accepted(self, credentials: T) -> None:
        """The cloud took them."""
        with self._lock:
            if self._refused is not None:
                self._refused = None
                seconds = round(self._clock() - self._since, 1)
                log.info("the cloud takes the credentials", extra={"refused_seconds": seconds})

    def _begin_pause(self) -> None:
        self._until = self._clock() + self._backoff.delay(self._times, random.random())


class Credentials(Generic[T]):
    """The credentials of one account: `read` gives those of now, in no time or as they come.

    `keys` of the configuration name them in errors; `place` shows an operator where they are.
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
        self._first = SharedLock()
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
            async with self._first.held():
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


class AnyToken(Protocol):
    """What is shown with each request, and good for so many seconds from when it was given."""

    @property
    def value(self) -> str: ...

    @property
    def lifetime(self) -> float: ...


L = TypeVar("L", bound=AnyToken)


def is_shown(value: str) -> bool:
    """Whether a token or session can be shown; of what cannot, no request would ever leave.

    One that is a word, or `name=word`, would be redacted from all that is logged and reported. One
    that repeats how it begins may be looked for in a text of its own for a millisecond.
    """
    part = value.rpartition("=")[2].strip('"')
    is_word = MIN_SECRET <= len(part) < MIN_TOKEN
    is_form = MIN_TOKEN <= len(value) <= MAX_TOKEN and bool(TOKEN.fullmatch(value)) and not is_word
    return is_form and all(it.find(it[:MIN_TOKEN], 1) == -1 for it in (value, part))


def _usable(token: L) -> L:
    if not (is_shown(token.value) and token.lifetime > 0):
        raise CloudError("GetToken: the answer has no token that can be used")
    register_secrets(token.value)
    return token


class RenewedToken(Generic[L]):
    """A token that the first who needs it renews before it ends; `renew` asks for a new one.

    Where that fails, the old one is used while it is good.
    """

    def __init__(self, renew: Callable[[], Awaitable[L]]) -> None:
        self.current: L | None = None
        self._renew, self._renewing = renew, SharedLock()
        self._renew_at = self._ends_at = 0.0  # monotonic
        self._refused: L | None = None  # is not shown again

    def renew_within(self, seconds: float) -> None:
        """Renew it in so many seconds, if not before: it came with less than is needed."""
        self._renew_at = min(self._renew_at, time.monotonic() + seconds)

    async def use(self, call: Callable[[L], Awaitable[R]]) -> R:
        """What `call` gives with the token; where that is refused, again with a new one."""
        token = await self.get()
        try:
            return await call(token)
        except Unauthenticated:
            token = await self.get(instead_of=token)
        return await call(token)

    async def get(self, instead_of: L | None = None) -> L:
        """The token of now; another one than `instead_of`, which was refused."""
        if instead_of == self.current:
            self._refused = instead_of
        is_good = time.monotonic() < self._ends_at
        if self._renewing.is_held and is_good and (token := self._good()):
            return token  # who renews it may wait for long
        async with self._renewing.held():
            token = self._good()
            if token is not None and time.monotonic() < self._renew_at:
                return token
            try:
                self.current, self._refused = _usable(await self._renew()), None
            except CloudError as error:
                if (token := self._good()) is None:
                    raise
                grace = min(token.lifetime, LONGEST_LIFE) * (1 - RENEW_AT) / 4
                self._renew_at = time.monotonic() + grace
                log.warning("the token is not renewed yet", extra={"why": str(error)})
                return token
            life = min(self.current.lifetime, LONGEST_LIFE)
            self._renew_at = time.monotonic() + life * RENEW_AT
            self._ends_at = time.monotonic() + self.current.lifetime
            return self.current

    def _good(self) -> L | None:
        """The last one, unless it was refused."""
        return None if self.current == self._refused else self.current
