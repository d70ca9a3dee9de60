"""The --cloud-config file of the simulated cloud: an INI file whose faults are reported at once."""

import math
from configparser import ConfigParser, Error
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from ccm.cloud.config_file import ConfigReader, fault_in, number_within, positive_duration
from ccm.cloud.interface import Quota
from ccm.errors import ConfigurationFaults

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
    try:
        parser = ConfigParser(interpolation=None)
        parser.read_string(content.decode(), path)
    except (UnicodeDecodeError, Error) as wrong:
        fault = fault_in(path, "", f"is not an INI file{_line(wrong)}", EXAMPLE)
        raise ConfigurationFaults([fault]) from wrong
    values = dict(parser[SECTION]) if parser.has_section(SECTION) else {}
    reader = ConfigReader(path, SECTION, KEYS, values)
    for section in (*parser.sections(), *(["DEFAULT"] if parser.defaults() else ())):
        if section != SECTION:
            reader.add_at("", f"has an unknown section [{section}]", f"use only [{SECTION}]")
    if not values.get("url"):
        reader.add("url", "is missing", "give the URL of the simulated cloud")
    file, rate = reader.text("token-file"), "give calls a second, above 0"
    config = SimulatedConfig(
        url=reader.value("url", _url, "", "give the URL of the simulated cloud"),
        token=_token(reader),
        token_file=Path(file) if file else None,
        page_size=reader.value(
            "page-size", number_within(1, 1000), 100, "give a whole number, 1 to 1000"
        ),
        read_quota=reader.value("read-rate", _quota, DEFAULT_READ_QUOTA, rate),
        write_quota=reader.value("write-rate", _quota, DEFAULT_WRITE_QUOTA, rate),
        timeout=reader.value("timeout", _timeout, 10.0, "give a duration as 10s or 500ms"),
    )
    reader.check()
    return config


def _line(wrong: Exception) -> str:
    """Where it went wrong; never what stands there, which may be a secret."""
    number = getattr(wrong, "lineno", None) or next(iter(getattr(wrong, "errors", [])), (None,))[0]
    return f": line {number} is not understood" if number else ""


def _token(reader: ConfigReader) -> str:
    """The token, or what is in the token file; the value itself is never in a fault."""
    token, file = reader.text("token"), reader.text("token-file")
    if token and file:
        reader.add("token", "and token-file are both set", "keep one of them")
    if not token and not file:
        reader.add("token", "is missing", "set token or token-file")
    if not file:
        if token and not _is_sendable(token):
            reader.add("token", "has spaces or characters outside ASCII", "copy it again")
        return token
    try:
        return read_token(Path(file))
    except (OSError, ValueError) as wrong:
        reason = wrong.strerror if isinstance(wrong, OSError) else str(wrong)
        reader.add("token-file", f"{file} cannot be read: {reason}", "name a file with a token")
        return ""


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
    if not text:
        return ""  # told as missing
    parts = urlsplit(text)
    surplus = parts.query or parts.fragment or parts.username or parts.port == 0
    if parts.scheme not in ("http", "https") or not parts.hostname or surplus:
        raise ValueError(text)
    return text.rstrip("/")


def _quota(text: str) -> Quota:
    """A rate; twice as many calls may come at once, and at least one."""
    rate = float(text)
    if not 0 < rate < math.inf:
        raise ValueError(text)
    return Quota(rate, max(1, int(2 * rate)))


def _timeout(text: str) -> float:
    """A duration, or a bare number of seconds."""
    return positive_duration(f"{text}s" if text.replace(".", "", 1).isdecimal() else text)
