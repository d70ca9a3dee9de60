"""Values in configuration files: how they are read, and why a file that one names is wrong."""

import os
import re
import ssl
import stat
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import urlsplit

from ccm.durations import parse_duration
from ccm.model.cloud import Network, read_network

READABLE = "give the path of a file that this user may read"
"""The remedy for what `why_unreadable` says."""

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def why_unreadable(file: str) -> str:
    """Why this user cannot read a file; empty when he can.

    The path is not shown: someone may have written a secret in its place.
    """
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):
            return "is not a regular file"
        with open(file, "rb"):
            return ""
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    except ValueError:
        return "cannot be read: its name has a null character"


def why_no_certificate(file: str) -> str:
    """Why a file of certificates is unusable, as the problem of a fault; empty otherwise."""
    why = certificate_problem(file)
    return why and f"is {file!r}, which {why}"


def certificate_problem(file: str) -> str:
    """The same without the path, which is not for tenants."""
    if why := why_unreadable(file):
        return why
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except ssl.SSLError:
        return "holds no certificate in PEM"
    return ""


Reading = tuple[Callable[[str], Any], str]
"""How a text is read, and the remedy where its ValueError says that it is wrong."""
TextReading = tuple[Callable[[str], str], str]


def choice(*choices: str) -> TextReading:
    """One of these."""
    return one_of(choices), f"use {', '.join(choices)}"


def one_of(choices: Collection[str]) -> Callable[[str], str]:
    """A `read` that takes these values only."""

    def read(value: str) -> str:
        if value not in choices:
            raise ValueError(value)
        return value

    return read


def whole_number(minimum: int, maximum: int, what: str = "") -> Reading:
    """A whole number from `minimum` to `maximum`; none with a 0 before it, which may be octal."""

    def read(value: str) -> int:
        if not re.fullmatch("0|[1-9][0-9]{0,9}", value) or not minimum <= int(value) <= maximum:
            raise ValueError(value)
        return int(value)

    return read, what or f"give {minimum} to {maximum}"


def of_form(form: str | re.Pattern[str], remedy: str) -> TextReading:
    """A text that matches as a whole."""

    def read(value: str) -> str:
        if not re.fullmatch(form, value):
            raise ValueError(value)
        return value

    return read, remedy


def boolean(value: str) -> bool:
    """What Go's gcfg takes for a switch, in any case of letters."""
    return one_of(_TRUE + _FALSE)(value.lower()) in _TRUE


def yaml_boolean(value: str) -> bool:
    """The same, and what YAML adds."""
    return boolean({"y": "yes", "n": "no"}.get(value.lower(), value))


def positive_duration(value: str) -> float:
    """Seconds, as in `15s`; more than none."""
    if (seconds := parse_duration(value)) <= 0:
        raise ValueError(value)
    return seconds


def network(value: str) -> Network:
    """A network, whose host bits are dropped as Go's ParseCIDR does."""
    if (found := read_network(value)) is None:
        raise ValueError(value)
    return found


NETWORK: Reading = network, "give a network as 192.0.2.0/24"


def url(
    value: str, schemes: Collection[str] = ("https",), paths: Collection[str] | None = ("",)
) -> str:
    """The URL of a host without credentials and query; `paths` may be any. No `/` at its end."""
    found = urlsplit(value)
    if found.scheme not in schemes or not found.hostname or found.port == 0:
        raise ValueError(value)
    if found.username or found.query or found.fragment:
        raise ValueError(value)
    if paths is not None and found.path.rstrip("/") not in paths:
        raise ValueError(value)
    return value.rstrip("/")


def secure_url(value: str) -> str:
    """The URL of what gets credentials: HTTPS, or HTTP on this host; its path may be any."""
    is_local = re.match(r"http://(127\.0\.0\.1|\[::1]|localhost)[:/]?", value)
    return url(value, ("http", "https") if is_local else ("https",), None)
