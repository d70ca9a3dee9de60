"""Cutting a list into pages with an opaque token."""

import base64
import binascii
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import TypeVar

from ccm.sandbox.cloud.problems import invalid

T = TypeVar("T")


def page(
    records: Mapping[str, T], query: Mapping[str, str], most: int
) -> tuple[Sequence[T], str | None]:
    """The page of `records` in the order of their keys, and the token of the next one if any.

    A record that is added or dropped between two pages makes no other appear twice or not at all.
    """
    keys = sorted(records)
    start = bisect_right(keys, _last_key(query["page_token"])) if "page_token" in query else 0
    chosen = keys[start : start + _limit(query, most)]
    has_more = start + len(chosen) < len(keys)
    return [records[key] for key in chosen], _token(chosen[-1]) if has_more else None


def _limit(query: Mapping[str, str], most: int) -> int:
    text = query.get("limit", str(most))
    if not text.isdecimal() or int(text) < 1:
        raise invalid(f"limit {text!r} must be a whole number of 1 or more")
    return min(int(text), most)


def _token(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode()


def _last_key(token: str) -> str:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as wrong:
        raise invalid(f"page_token {token!r} is not one of ours") from wrong
