"""Durations as Kubernetes flags write them: `1h2m3s`, `100ms`, `1.5s`."""

import re

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|ms|us|µs|ns|m|s)")


def parse_duration(text: str) -> float:
    """Seconds in `text`; ValueError when it is not a duration. A bare `0` is allowed, as in Go."""
    if text in {"0", "+0", "-0"}:
        return 0.0
    sign, rest = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    parts = list(_PART.finditer(rest))
    if not parts or "".join(part.group() for part in parts) != rest:
        raise ValueError(text)
    return sign * sum(float(part[1]) * _UNITS[part[2]] for part in parts)


def format_duration(seconds: float) -> str:
    """The short form a person reads, to the microsecond: `5m`, `1.5s`, `2h30m`, `250ms`."""
    sign = "-" if seconds < 0 else ""
    microseconds = round(abs(seconds) * 1e6)
    if 0 < microseconds < 1_000_000:
        return f"{sign}{_plain(microseconds / 1000)}ms"
    hours, rest = divmod(microseconds, 3_600_000_000)
    minutes, rest = divmod(rest, 60_000_000)
    text = f"{hours}h" * bool(hours) + f"{minutes}m" * bool(minutes)
    return sign + text + (f"{_plain(rest / 1e6)}s" if rest or not text else "")


def _plain(number: float) -> str:
    return f"{number:.6f}".rstrip("0").rstrip(".")
