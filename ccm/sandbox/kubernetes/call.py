"""One request to a resource as its handler needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from ccm.sandbox.kubernetes.failures import (
    Failure,
    bad_request,
    unsupported_media_type,
    unsupported_option,
)
from ccm.sandbox.kubernetes.objects import Object
from ccm.sandbox.kubernetes.place import Place

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Call:
    """What is to be done where, and what the query, the headers and the body say."""

    verb: str
    place: Place
    query: Mapping[str, str]
    accept: str
    content_type: str
    body: bytes

    @property
    def dry_run(self) -> bool:
        wanted = self.query.get("dryRun", "")
        if wanted not in ("", "All"):
            options = f"{self.verb.removesuffix('collection').capitalize()}Options"
            raise unsupported_option(options, "dryRun", f'["{wanted}"]', '"All"')
        return bool(wanted)

    def truth(self, name: str) -> bool:
        """Return a boolean query parameter as the real server reads it."""
        return self.query.get(name, "").lower() not in ("", "0", "false")

    def number(self, name: str) -> int:
        text = self.query.get(name) or "0"
        try:
            return int(text)
        except ValueError:
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None

    def document(self) -> Object:
        """Return the body of a create or an update."""
        return read_document(self.content_type, self.body)

    def options(self) -> Object:
        """Return the body of a delete, which may be absent."""
        return _object(self.body) if self.body else {}


def check_accept(accept: str) -> None:
    """Refuse a client that does not take JSON."""
    if not accept:
        return
    for choice in accept.split(","):
        parts = [part.strip() for part in choice.split(";")]
        asks_for = [part for part in parts if part.startswith("as=")]
        if parts[0] in (JSON, "application/*", "*/*") and asks_for in ([], ["as=Table"]):
            return
    raise Failure(406, f"only the following media types are accepted: {JSON}")


def read_document(content_type: str, body: bytes) -> Object:
    """Return the JSON object that a body holds."""
    if content_type not in ("", JSON):
        raise unsupported_media_type(content_type, (JSON,))
    return _object(body)


def _object(body: bytes) -> Object:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as fault:
        raise bad_request(f"the object provided is unrecognized: {fault}") from fault
    if not isinstance(document, dict):
        raise bad_request("the object provided is unrecognized: not a JSON object")
    return document
