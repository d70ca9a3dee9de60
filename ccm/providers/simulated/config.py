"""The --cloud-config file of the simulated cloud: an INI file whose faults are told all at once."""

import math
from collections.abc import Callable, Mapping
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
READS = Quota(per_second=20.0, burst=40)
WRITES = Quota(per_second=5.0, burst=10)


@dataclass(frozen=True, slots=True)
class SimulatedConfig:
    """How to reach the simulated cloud and how much of it to use; `timeout` is of one call."""

    url: str
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    page_size: int = 100
    reads: Quota = READS
    writes: Quota = WRITES
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
    values = dict(parser[SECTION]) if parser.has_section(SECTION) else {}
    reader = _Reader(where, values)
    reader.refuse_unknown([*parser.sections(), *(["DEFAULT"] if parser.defaults() else [])])
    config = SimulatedConfig(
        url=reader.required("url", _url, "give the URL of the simulated cloud"),
        token=reader.token(),
        token_file=Path(values["token-file"]) if values.get("token-file") else None,
        page_size=reader.optional("page-size", _page_size, 100, "give a whole number, 1 to 1000"),
        reads=reader.optional("read-rate", _quota, READS, "give calls a second, above 0"),
        writes=reader.optional("write-rate", _quota, WRITES, "give calls a second, above 0"),
        timeout=reader.optional("timeout", _timeout, 10.0, "give a duration as 10s or 500ms"),
    )
    if reader.faults:
        raise ConfigurationFaults(reader.faults)
    return config


def _line(wrong: Exception) -> str:
    """Where it went wrong; never what stands there, which may be a secret."""
    number = getattr(wrong, "lineno", None) or next(iter(getattr(wrong, "errors", [])), (None,))[0]
    return f": line {number} is not understood" if number else ""


class _Reader:
    """Reads one key at a time and collects what is wrong; a faulty value reads as its default."""

    def __init__(self, where: str, values: Mapping[str, str]) -> None:
        self.faults: list[ConfigurationFault] = []
        self._where, self._values = where, values

    def refuse_unknown(self, sections: list[str]) -> None:
        for section in sections:
            if section != SECTION:
                self._add_to_file(f"has an unknown section [{section}]", f"use only [{SECTION}]")
        for key in sorted(self._values.keys() - set(KEYS)):
            self._add(
                key, "is not a key of this file", f"remove it or use one of {', '.join(KEYS)}"
            )

    def required(self, key: str, read: Callable[[str], str], remedy: str) -> str:
        if not self._values.get(key):
            self._add(key, "is missing", remedy)
            return ""
        return self.optional(key, read, "", remedy)

    def optional(self, key: str, read: Callable[[str], T], default: T, remedy: str) -> T:
        if key not in self._values:
            return default
        try:
            return read(self._values[key])
        except ValueError:
            value = self._values[key]
            shown = "a value with credentials" if "@" in value else f"the wrong value {value!r}"
            self._add(key, f"has {shown}", remedy)
            return default

    def token(self) -> str:
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

    def _add_to_file(self, problem: str, remedy: str) -> None:
        self.faults.append(ConfigurationFault(self._where, problem, remedy))


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
