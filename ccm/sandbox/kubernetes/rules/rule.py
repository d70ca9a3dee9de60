"""The places where a kind brings behaviour of its own into a write."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ccm.sandbox.kubernetes.failures import Cause
from ccm.sandbox.kubernetes.objects import Object
from ccm.sandbox.kubernetes.store import Store

Decode = Callable[[Object], None]
Default = Callable[[Object], None]
Admit = Callable[[Object, Object | None, Store], None]
Validate = Callable[[Object, Object | None], Iterable[Cause]]


def _leave(obj: Object) -> None:
    """Change nothing."""


def _admit_as_is(obj: Object, old: Object | None, store: Store) -> None:
    """Change nothing."""


def _accept(obj: Object, old: Object | None) -> Iterable[Cause]:
    return ()


class Wrong(Exception):
    """An object that `admit` cannot let in."""

    def __init__(self, causes: list[Cause]) -> None:
        super().__init__(causes)
        self.causes = causes


@dataclass(frozen=True, slots=True)
class Rules:
    """The steps of one write, in this order; `old` is None in a create.

    In an update, what the request may not change is shared with `old` below its first level:
    `admit` replaces there and does not change in place.

    decode    raises Undecodable for what Go's types cannot hold.
    default   fills in what the client left out, before it is known what may change.
    admit     changes what the server decides: allocations, taints, finalizers; raises Wrong.
    validate  yields every wrong field.
    """

    decode: Decode = _leave
    default: Default = _leave
    admit: Admit = _admit_as_is
    validate: Validate = _accept


def wrong(field: str, value: object, why: str) -> Cause:
    """Return the cause for a value that is not allowed."""
    shown = f'"{value}"' if isinstance(value, str) else value
    return Cause(field, "FieldValueInvalid", f"Invalid value: {shown}: {why}")


def required(field: str, why: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", f"Required value: {why}" if why else "Required value")


def refused(field: str, why: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {why}")


def duplicate(field: str, value: object) -> Cause:
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {value}")


def unsupported(field: str, value: str, supported: Iterable[str]) -> Cause:
    choices = ", ".join(f'"{choice}"' for choice in supported)
    told = f'Unsupported value: "{value}": supported values: {choices}'
    return Cause(field, "FieldValueNotSupported", told)


def immutable(field: str, value: object) -> Cause:
    return wrong(field, value, "field is immutable")
