"""The --cloud-config file of the simulated cloud: an INI file whose faults are reported at once."""

import math
from collections.abc import Callable
from configparser import ConfigParser, Error
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from ccm.cloud.interface import Quota
from ccm.durations import parse_duration
from ccm.errors import ConfigurationFault, ConfigurationFaults

T = TypeVar("T")

SECTION = "Global"
KEYS = ("url", "token", "token-file", "page-size", "read-rate", "write-rate", "timeout")
EXAMPLE = "start it with [Global] and url = http://127.0.0.1:8080"
DEFAULT_READ_QUOTA = Quota(per_second=20.0, burst=40)
DEFAULT_WRITE_QUOTA = Quota(per_second=5.0, burst=10)


@dataclass(frozen=True, slots=True)
class SimulatedConfig:
    """How to reach the simulated cloud and how much of it to use; `timeout` is of one call."""

    url: str
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    page_size: int = 100
    read_quota: Quota = DEFAULT_READ_QUOTA
    write_quota: Quota = DEFAULT_WRITE_QUOTA
    timeout: float = 10.0


def read_config(content: bytes, path: str) -> SimulatedConfig:
    """The configuration in `content`; raises `ConfigurationFaults` with everything wrong in it."""
    where = path or "--cloud-config"
    try:
        parser = ConfigParser(interpolation=None)
        parser.read_string(content.decode(), where)
    except (UnicodeDecodeError, Error) as wrong:
        fault = ConfigurationFault(where, f"is not an INI file{_line(wrong)}", EXAMPLE)
        raise ConfigurationFaults([fault]) from wrong
    reader = _Reader(where, parser)
    config = reader.read()
    if reader.faults:
        raise ConfigurationFaults(reader.faults)
    return config


def _line(wrong: Exception) -> str:
    """Where it went wrong; never what stands there, which may be a secret."""
    number = getattr(wrong, "lineno", None) or next(iter(getattr(wrong, "errors", [])), (None,))[0]
    return f": line {number} is not understood" if number else ""


class _Reader:
    """Reads one key at a time and collects what is wrong; a faulty value reads as its default."""

    def __init__(self, where: str, parser: ConfigParser) -> None:
        self.faults: list[ConfigurationFault] = []
        self._where, self._parser = where, parser
        self._values = dict(parser[SECTION]) if parser.has_section(SECTION) else {}

    def read(self) -> SimulatedConfig:
        self._refuse_unknown()
        if not self._values.get("url"):
            self._add("url", "is missing", "give the URL of the simulated cloud")
        file, rate = self._values.get("token-file"), "give calls a second, above 0"
        return SimulatedConfig(
            url=self._value("url", _url, "", "give the URL of the simulated cloud"),
            token=self._token(),
            token_file=Path(file) if file else None,
            page_size=self._value("page-size", _page_size, 100, "give a whole number, 1 to 1000"),
            read_quota=self._value("read-rate", _quota, DEFAULT_READ_QUOTA, rate),
            write_quota=self._value("write-rate", _quota, DEFAULT_WRITE_QUOTA, rate),
            timeout=self._value("timeout", _timeout, 10.0, "give a duration as 10s or 500ms"),
        )

    def _refuse_unknown(self) -> None:
        for section in (
            *self._parser.sections(),
            *(["DEFAULT"] if self._parser.defaults() else ()),
        ):
            if section != SECTION:
                problem = f"has an unknown section [{section}]"
                self.faults.append(
                    ConfigurationFault(self._where, problem, f"use only [{SECTION}]")
                )
        for key in sorted(self._values.keys() - set(KEYS)):
            remedy = f"remove it or use one of {', '.join(KEYS)}"
            self._add(key, "is not a key of this file", remedy)

    def _value(self, key: str, read: Callable[[str], T], default: T, remedy: str) -> T:
        value = self._values.get(key)
        if value is None or (key == "url" and not value):
            return default
        try:
            return read(value)
        except ValueError:
            shown = "a value with credentials" if "@" in value else f"the wrong value {value!r}"
            self._add(key, f"has {shown}", remedy)
            return default

    def _token(self) -> str:
        """The token, or what is in the token file; the value itself is never in a fault."""
        token, file = self._values.get("token", ""), self._values.get("token-file", "")
        if token and file:
            self._add("token", "and token-file are both set", "keep one of them")
        if not token and not file:
            self._add("token", "is missing", "set token or token-file")
        if not file:
            if token and not _is_sendable(token):
                self._add("token", "has spaces or characters outside ASCII", "copy it again")
            return token
        try:
            return read_token(Path(file))
        except (OSError, ValueError) as wrong:
            reason = wrong.strerror if isinstance(wrong, OSError) else str(wrong)
            self._add("token-file", f"{file} cannot be read: {reason}", "name a file with a token")
            return ""

    def _add(self, key: str, problem: str, remedy: str) -> None:
        where = f"{self._where} [{SECTION}] {key}"
        self.faults.append(ConfigurationFault(where, problem, remedy))


def read_token(path: Path) -> str:
    """The token in a file; ValueError when there is none, OSError when it cannot be read."""
    try:
        token = path.read_text().strip()
    except UnicodeDecodeError:
        raise ValueError("it is not text") from None
    if not token:
        raise ValueError("it is empty")
    if not _is_sendable(token):
        raise ValueError("it has spaces or characters outside ASCII")
    return token


def _is_sendable(token: str) -> bool:
    """Whether the token can stand in an HTTP header."""
    return token.isascii() and token.isprintable() and " " not in token


def _url(text: str) -> str:
    parts = urlsplit(text)
    surplus = parts.query or parts.fragment or parts.username or parts.port == 0
    if parts.scheme not in ("http", "https") or not parts.hostname or surplus:
        raise ValueError(text)
    return text.rstrip("/")


def _page_size(text: str) -> int:
    if not 1 <= int(text) <= 1000:
        raise ValueError(text)
    return int(text)


def _quota(text: str) -> Quota:
    """A rate; twice as many calls may come at once, and at least one."""
    rate = float(text)
    if not 0 < rate < math.inf:
        raise ValueError(text)
    return Quota(rate, max(1, int(2 * rate)))


def _timeout(text: str) -> float:
    """A duration, or a bare number of seconds."""
    seconds = float(text) if text.replace(".", "", 1).isdecimal() else parse_duration(text)
    if seconds <= 0:
        raise ValueError(text)
    return seconds
