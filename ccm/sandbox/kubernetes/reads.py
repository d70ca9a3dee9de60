"""What get and list mean: versions, pages and selectors."""

from __future__ import annotations

import base64
from dataclasses import dataclass

import orjson

from ccm.sandbox.kubernetes import failures
from ccm.sandbox.kubernetes.call import Call
from ccm.sandbox.kubernetes.history import Stored, TooOld
from ccm.sandbox.kubernetes.kinds import Kind
from ccm.sandbox.kubernetes.objects import Object
from ccm.sandbox.kubernetes.selectors import matcher
from ccm.sandbox.kubernetes.store import Store

OPTIONS = "ListOptions"
MATCH = "resourceVersionMatch"
EXACT = "Exact"
NOT_OLDER_THAN = "NotOlderThan"


@dataclass(frozen=True, slots=True)
class Page:
    """A list, or the part of it that was asked for."""

    kind: Kind
    items: list[Stored]
    revision: int
    token: str = ""
    remaining: int | None = None

    @property
    def metadata(self) -> Object:
        meta: Object = {"resourceVersion": str(self.revision)}
        if self.token:
            meta["continue"] = self.token
        if self.remaining is not None:
            meta["remainingItemCount"] = self.remaining
        return meta

    @property
    def encoded(self) -> bytes:
        head = orjson.dumps(
            {
                "kind": f"{self.kind.name}List",
                "apiVersion": self.kind.api_version,
                "metadata": self.metadata,
            }
        )
        return head[:-1] + b',"items":[' + b",".join(each.item for each in self.items) + b"]}"


def read_object(store: Store, call: Call) -> Stored:
    """Return one object."""
    place = call.place
    version = call.query.get("resourceVersion") or "0"
    if not version.isdecimal():
        raise failures.raw_error(f'resourceVersion: Invalid value: "{version}": invalid syntax')
    if int(version) > store.revision:
        raise failures.too_large_version(int(version), store.revision)
    found = store.get(place.kind, place.key)
    if found is None:
        raise failures.not_found(place.kind, place.name)
    return found


def read_list(store: Store, call: Call) -> Page:
    """Return the objects that a list asks for, as they were at one version."""
    start, revision = _snapshot(store, call)
    kind = call.place.kind
    prefix = kind.prefix(call.place.namespace)
    matches = matcher(
        kind, call.query.get("labelSelector", ""), call.query.get("fieldSelector", "")
    )
    try:
        objects = store.at(kind, revision)
    except TooOld as fault:
        raise failures.expired(_too_old(call)) from fault
    keys = sorted(key for key in objects if key.startswith(prefix) and key >= start)
    items = [objects[key] for key in keys if matches is None or matches(objects[key].obj)]
    limit = call.number("limit")
    # As the real server's cache does: a list at any version is never cut into pages.
    if limit <= 0 or len(items) <= limit or call.query.get("resourceVersion") == "0":
        return Page(kind, items, revision)
    token = _encode_token(revision, items[limit].key)
    remaining = len(items) - limit if matches is None else None
    return Page(kind, items[:limit], revision, token, remaining)


def _snapshot(store: Store, call: Call) -> tuple[str, int]:
    """Return the first key and the version that a list is about."""
    token = call.query.get("continue", "")
    wanted = version_of(call)
    match = call.query.get("resourceVersionMatch", "")
    _check_match(call, match, token)
    if token:
        if wanted:
            raise failures.bad_request(
                "specifying resource version is not allowed when using continue"
            )
        return _decode_token(token)
    if wanted > store.revision:
        raise failures.too_large_version(wanted, store.revision)
    exact = match == EXACT or (not match and wanted and call.number("limit"))
    return "", wanted if exact else store.revision


def version_of(call: Call) -> int:
    """Return the resourceVersion that a read asks for; 0 when it asks for none."""
    text = call.query.get("resourceVersion") or "0"
    if not text.isdecimal():
        raise failures.bad_request(f'Invalid value: "{text}": strconv.ParseUint: invalid syntax')
    return int(text)


def _check_match(call: Call, match: str, token: str) -> None:
    if not match:
        return
    why = ""
    if match not in (EXACT, NOT_OLDER_THAN):
        supported = '"Exact", "NotOlderThan", ""'
        raise failures.unsupported_option(OPTIONS, MATCH, f'"{match}"', supported)
    if token:
        why = "resourceVersionMatch is forbidden when continue is provided"
    elif not call.query.get("resourceVersion"):
        why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
    elif match == EXACT and call.query["resourceVersion"] == "0":
        why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
    if why:
        raise failures.forbidden_option(OPTIONS, MATCH, why)


def _encode_token(revision: int, start: str) -> str:
    return base64.urlsafe_b64encode(orjson.dumps({"rv": revision, "start": start})).decode()


def _decode_token(token: str) -> tuple[str, int]:
    try:
        found = orjson.loads(base64.urlsafe_b64decode(token))
        return str(found["start"]), int(found["rv"])
    except (ValueError, KeyError, TypeError):
        raise failures.bad_request("continue key is not valid") from None


def _too_old(call: Call) -> str:
    if call.query.get("continue"):
        return (
            "The provided continue parameter is too old to display a consistent list result. You"
            " can start a new list without the continue parameter."
        )
    return "The resourceVersion for the provided list is too old."
