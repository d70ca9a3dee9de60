"""The --cloud-config file of the simulated cloud; all its faults are reported at once."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

from ccm.cloud.config_file import positive_duration, url, whole_number
from ccm.cloud.interface import Quota
from ccm.cloud.sections import Faults, Sections, setting

DEFAULT_READ_QUOTA = Quota(per_second=20.0, burst=40)
DEFAULT_WRITE_QUOTA = Quota(per_second=5.0, burst=10)


def _quota(text: str) -> Quota:
    """A rate; twice as many calls may come at once, and at least one."""
    rate = float(text)
    if not 0 < rate < math.inf:
        raise ValueError(text)
    return Quota(rate, max(1, int(2 * rate)))


def _timeout(text: str) -> float:
    """A duration, or a bare number of seconds."""
    return positive_duration(f"{text}s" if text.replace(".", "", 1).isdecimal() else text)


def _url(value: str) -> str:
    return url(value, ("http", "https"), None)


_URL = _url, "give the URL of the simulated cloud"
_PAGE = whole_number(1, 1000)
_RATE = _quota, "give calls a second, above 0"
_TIMEOUT = _timeout, "give a duration as 10s or 500ms"


@dataclass(frozen=True, slots=True)
class SimulatedConfig:
    """How to reach the simulated cloud and how much of it to use; `timeout` is of one call."""

    url: str = setting("", _URL)
    token: str = setting("", is_secret=True)
    token_file: Path | None = setting(None, (Path, "give a path"))
    page_size: int = setting(100, _PAGE)
    read_quota: Quota = setting(DEFAULT_READ_QUOTA, _RATE, name="read-rate")
    write_quota: Quota = setting(DEFAULT_WRITE_QUOTA, _RATE, name="write-rate")
    timeout: float = setting(10.0, _TIMEOUT)


def read_config(content: bytes, path: str) -> SimulatedConfig:
    """The configuration in `content`; raises `ConfigurationFaults` with everything wrong in it."""
    sections = Sections(content, path, {"Global": SimulatedConfig})
    config, faults = sections.read(SimulatedConfig), sections.faults
    if not sections.has("Global", "url"):
        faults.add("[Global] url", "is missing", "give the URL of the simulated cloud")
    config = replace(config, token=_token(config, faults))
    faults.check()
    return config


def _token(config: SimulatedConfig, faults: Faults) -> str:
    """The token, or what is in the token file; the value itself is never in a fault."""
    token, file = config.token, config.token_file
    if token and file:
        faults.add("[Global] token", "and token-file are both set", "keep one of them")
    if not token and not file:
        faults.add("[Global] token", "is missing", "set token or token-file")
    if not file:
        if token and not _is_sendable(token):
            problem = "has spaces or characters outside ASCII"
            faults.add("[Global] token", problem, "copy it again")
        return token
    try:
        return read_token(file)
    except (OSError, ValueError) as wrong:
        reason = wrong.strerror if isinstance(wrong, OSError) else str(wrong)
        problem = f"{file} cannot be read: {reason}"
        faults.add("[Global] token-file", problem, "name a file with a token")
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
