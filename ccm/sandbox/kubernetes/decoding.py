"""The checks by which a body becomes an object of the right kind and name."""

from __future__ import annotations

from collections.abc import Callable

from ccm.sandbox.kubernetes.failures import Failure, Undecodable, bad_request
from ccm.sandbox.kubernetes.fields import drop_unknown
from ccm.sandbox.kubernetes.kinds import Kind
from ccm.sandbox.kubernetes.objects import Object, metadata
from ccm.sandbox.kubernetes.place import Place
from ccm.sandbox.kubernetes.rules import rules_of
from ccm.sandbox.kubernetes.rules.metadata import decode_metadata

Refuse = Callable[[str], Failure]


def check_type(kind: Kind, obj: Object, refuse: Refuse) -> None:
    """Refuse an object of another kind; one that does not say is of the right kind."""
    named = obj.setdefault("kind", kind.name), obj.setdefault("apiVersion", kind.api_version)
    if named != (kind.name, kind.api_version):
        raise refuse(
            f'{named[0]} in version "{named[1]}" cannot be handled as a {kind.name}: converting'
            f" ({named[1]}.{named[0]}) to ({kind.api_version}.{kind.name}): unknown conversion"
        )


def check_name(place: Place, obj: Object) -> None:
    """Refuse an object that is not the one the path names."""
    name = metadata(obj).get("name")
    if not name:
        raise bad_request(
            f"the name of the object ({place.name} based on URL) was undeterminable: name must be"
            " provided"
        )
    if name != place.name:
        raise bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({place.name})"
        )


def decode(kind: Kind, obj: Object, refuse: Refuse, *, strict: bool) -> None:
    """Refuse what Go's types cannot hold and fill in defaults.

    Unknown fields are dropped, or refused when `strict`.
    """
    try:
        decode_metadata(obj)
        rules_of(kind).decode(obj)
    except Undecodable as fault:
        raise refuse(
            f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: {fault}'
        ) from fault
    rules_of(kind).default(obj)
    unknown = drop_unknown(kind, obj)
    if unknown and strict:
        told = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise refuse(
            f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: strict'
            f" decoding error: {told}"
        )
