"""From a flag's text to its value; a `ValueError` reads `problem|remedy`."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from math import isfinite, nan

from ccm.controllers import KNOWN, canonical
from ccm.durations import parse_duration
from ccm.settings.gates import GATES

_SIZES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 10**3, "M": 10**6, "G": 10**9}


def not_empty(text: str) -> str:
    if not text:
        raise ValueError("cannot be empty|name one, or leave the flag out")
    return text


def duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError:
        raise ValueError("is not a duration|write it like 10s, 5m or 1h30m") from None


def pause(text: str) -> float:
    """A duration that may be none at all."""
    if duration(text) < 0:
        raise ValueError("cannot be negative|use 0s or more")
    return duration(text)


def period(text: str) -> float:
    """A duration that something takes or has to wait."""
    if duration(text) <= 0:
        raise ValueError("must be longer than 0|use for example 20s")
    return duration(text)


def boolean(text: str) -> bool:
    if text.lower() in {"true", "t", "1"}:
        return True
    if text.lower() in {"false", "f", "0"}:
        return False
    raise ValueError("is neither true nor false|write true or false")


def whole(text: str) -> int:
    # int() would take 1_000 and digits of other scripts, too.
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError("is not a whole number|write a number like 10")
    return int(text)


def count(text: str) -> int:
    if whole(text) < 1:
        raise ValueError("must be a positive number|use 1 or more")
    return whole(text)


def amount(text: str) -> int:
    if whole(text) < 0:
        raise ValueError("cannot be negative|use 0 or more")
    return whole(text)


def width(text: str) -> int:
    """How many at the same time; 0 stands for a flag that is not given."""
    return count(text) if text else 0


def number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = nan
    if not isfinite(value):
        raise ValueError("is not a number|write a number like 20 or 0.5")
    return value


def rate(text: str) -> float:
    if number(text) < 0:
        raise ValueError("cannot be negative|use 0 for no limit")
    return number(text)


def port(text: str) -> int:
    value = whole(text)
    if not 0 <= value <= 65535:
        raise ValueError("is not a port|use a number from 1 to 65535, or 0 to serve nothing")
    return value


def size(text: str) -> int:
    match = re.fullmatch(r"([0-9]+)(Ki|Mi|Gi|k|M|G)?", text)
    if not match:
        raise ValueError("is not a size|write bytes, or a number with Ki, Mi or Gi")
    return int(match[1]) * _SIZES.get(match[2], 1)


def limit(text: str) -> str:
    if not re.fullmatch(r"\d+(,\d+(\.\d+)?%)?", text):
        raise ValueError("is not a limit|write a number like 10, or with a share: 10,10%")
    return text


def address(text: str) -> str:
    """An empty one is every address, as upstream has it."""
    try:
        return str(ip_address(text or "0.0.0.0"))
    except ValueError:
        raise ValueError("is not an IP address|write it like 0.0.0.0 or ::1") from None


def cluster_cidr(text: str) -> tuple[str, ...]:
    parts = [part for part in text.strip().split(",") if part]
    try:
        networks = [ip_network(part, strict=False) for part in parts]
    except ValueError:
        raise ValueError("is not a network|write it like 10.244.0.0/16") from None
    if len(parts) > 2 or len({network.version for network in networks}) != len(parts):
        raise ValueError("is not one network, or one of each IP family|drop one of them")
    return tuple(str(network) for network in networks)


def names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def curves(text: str) -> tuple[int, ...]:
    values = tuple(whole(part) for part in names(text))
    if not all(0 < value <= 65535 for value in values):
        raise ValueError("is not a list of TLS curve numbers|write numbers like 29,23,24")
    return values


def controllers(text: str) -> tuple[str, ...]:
    return _named("controllers", KNOWN, lambda: canonical(names(text)))


def webhooks(text: str) -> tuple[str, ...]:
    def known() -> tuple[str, ...]:
        for name in names(text):
            if name != "*":
                raise ValueError(name.removeprefix("-"))
        return names(text)

    return _named("webhooks", (), known)


def _named(
    what: str, known: Collection[str], read: Callable[[], tuple[str, ...]]
) -> tuple[str, ...]:
    try:
        return read()
    except ValueError as unknown:
        problem = f'is not understood: "{unknown}" is not in the list of known {what}'
        raise ValueError(f"{problem}|choose from: {', '.join(('*', *known))}") from None


def rates(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in _pairs(text, "rates|write class=calls-per-second,…"):
        try:
            found[name] = number(value)
        except ValueError:
            raise ValueError("is not a list of rates|write class=calls-per-second,…") from None
        if not name or found[name] <= 0:
            raise ValueError(f"has no rate above 0 for {name!r}|write class=calls-per-second,…")
    return found


def levels(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for pattern, level in _pairs(text, "levels|write pattern=N,…"):
        if not pattern or not level.isdecimal():
            raise ValueError("is not a list of levels|write pattern=N,…")
        found[pattern] = int(level)
    return found


def gates(text: str) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for name, value in _pairs(text, "feature gates|write Name=true,…"):
        if name not in GATES:
            raise ValueError(
                f"has an unknown gate {name!r}|choose from: {', '.join(sorted(GATES))}"
            )
        found[name] = boolean(value)
    return found


def _pairs(text: str, what: str) -> list[tuple[str, str]]:
    pairs = [part.partition("=") for part in names(text)]
    if not all(separator for _, separator, _ in pairs):
        raise ValueError(f"is not a list of {what}")
    return [(name.strip(), value.strip()) for name, _, value in pairs]


@dataclass(frozen=True, slots=True)
class CertKey:
    """A certificate and its key for clients that ask for one of `names` (empty: its own names)."""

    cert_file: str
    key_file: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = f":{','.join(self.names)}" if self.names else ""
        return f"{self.cert_file},{self.key_file}{named}"


def cert_key(text: str) -> tuple[CertKey, ...]:
    """One pair, `cert,key` or `cert,key:name,name`; the flag is repeated for more."""
    if not text.strip():
        return ()
    files, _, hosts = text.partition(":")
    parts = [part.strip() for part in files.split(",")]
    if len(parts) != 2 or not all(parts):
        raise ValueError("is not a pair of files|write certificate,key or certificate,key:name,…")
    return (CertKey(parts[0], parts[1], names(hosts)),)


def choice(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            offered = ", ".join(filter(None, allowed))
            raise ValueError(f"is not known|choose one of {offered}")
        return text

    return parse
