"""Ages as kubectl prints them."""

from __future__ import annotations

import datetime
from typing import Any

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400


def age(stamp: Any, now: datetime.datetime) -> str:
    """Return how long ago a timestamp was, or what kubectl prints when there is none."""
    if not stamp:
        return "<unknown>"
    then = datetime.datetime.fromisoformat(stamp)
    return human((now - then).total_seconds())


def human(seconds: float) -> str:
    """Round a duration as k8s.io/apimachinery/pkg/util/duration does."""
    seconds = int(seconds)
    if seconds < 0:
        return "0s" if seconds >= -1 else "<invalid>"
    if seconds < 2 * MINUTE:
        return f"{seconds}s"
    if seconds < 3 * HOUR:
        return _pair(seconds, MINUTE, "m", 1, "s", below=10 * MINUTE)
    if seconds < 2 * DAY:
        return _pair(seconds, HOUR, "h", MINUTE, "m", below=8 * HOUR)
    if seconds < 2 * YEAR:
        return _pair(seconds, DAY, "d", HOUR, "h", below=8 * DAY)
    return _pair(seconds, YEAR, "y", DAY, "d", below=8 * YEAR)


def _pair(seconds: int, large: int, mark: str, small: int, minor: str, *, below: int) -> str:
    count, rest = divmod(seconds, large)
    parts = rest // small
    if seconds < below and parts:
        return f"{count}{mark}{parts}{minor}"
    return f"{count}{mark}"
