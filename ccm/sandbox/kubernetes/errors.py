"""Errors as Kubernetes writes them: an HTTP code and a Status object."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

import orjson

from ccm.sandbox.kubernetes.kinds import ResourceKind
from ccm.sandbox.kubernetes.objects import Object

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(frozen=True, slots=True)
class FieldError:
    """One wrong field, which is also its metav1.StatusCause.

    The constructors are those of k8s.io/apimachinery/pkg/util/validation/field.
    """

    field: str
    reason: str
    message: str

    @classmethod
    def invalid(cls, field: str, value: object, why: str) -> Self:
        shown = orjson.dumps(value).decode() if isinstance(value, str | list) else value
        return cls(field, "FieldValueInvalid", f"Invalid value: {shown}: {why}")

    @classmethod
    def immutable(cls, field: str, value: object) -> Self:
        return cls.invalid(field, value, "field is immutable")

    @classmethod
    def required(cls, field: str, why: str = "") -> Self:
        message = f"Required value: {why}" if why else "Required value"
        return cls(field, "FieldValueRequired", message)

    @classmethod
    def forbidden(cls, field: str, why: str) -> Self:
        return cls(field, "FieldValueForbidden", f"Forbidden: {why}")

    @classmethod
    def duplicate(cls, field: str, value: object) -> Self:
        return cls(field, "FieldValueDuplicate", f"Duplicate value: {value}")

    @classmethod
    def not_supported(cls, field: str, value: str, supported: Iterable[str]) -> Self:
        choices = ", ".join(f'"{choice}"' for choice in supported)
        message = f'Unsupported value: "{value}": supported values: {choices}'
        return cls(field, "FieldValueNotSupported", message)


@dataclass(eq=False)
class StatusError(Exception):
    """An error that is sent to the client as a Status."""

    code: int
    message: str
    # None is the usual reason of the code; the real server leaves it out of raw errors ("").
    reason: str | None = None
    details: Object = field(default_factory=dict)
    retry_after: int | None = None

    def status(self) -> Object:
        details = dict(self.details)
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        body.update(message=self.message, code=self.code)
        reason = REASONS.get(self.code, "Unknown") if self.reason is None else self.reason
        if reason:
            body["reason"] = reason
        if details:
            body["details"] = details
        return body


class DecodeError(Exception):
    """A body that the real server's Go types could not hold: 400, or 422 inside a patch."""


class InvalidObject(Exception):
    """An object that admission refuses, with its field errors."""

    def __init__(self, *errors: FieldError) -> None:
        super().__init__(errors)
        self.errors = errors


def details_of(kind: ResourceKind, name: str) -> Object:
    """Return the details of a Status about one object."""
    details: Object = {"name": name} if name else {}
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.plural
    return details


def not_found(kind: ResourceKind, name: str) -> StatusError:
    """Return the 404 of an object that does not exist."""
    message = f'{kind.qualified_plural} "{name}" not found'
    return StatusError(404, message, details=details_of(kind, name))


def method_not_allowed() -> StatusError:
    """Return the 405 of a method without a meaning at its path."""
    return StatusError(405, "the server does not allow this method on the requested resource")


def already_exists(kind: ResourceKind, name: str, *, terminating: bool = False) -> StatusError:
    """Return the 409 of a create whose name is taken."""
    message = f'{kind.qualified_plural} "{name}" already exists'
    if terminating:
        message = f"object is being deleted: {message}"
    return StatusError(409, message, "AlreadyExists", details_of(kind, name))


def conflict(kind: ResourceKind, name: str, why: str) -> StatusError:
    """Return the 409 of a write that does not fit what is stored."""
    message = f'Operation cannot be fulfilled on {kind.qualified_plural} "{name}": {why}'
    return StatusError(409, message, details=details_of(kind, name))


def bad_request(message: str) -> StatusError:
    """Return a 400."""
    return StatusError(400, message)


def forbidden(kind: ResourceKind, name: str, why: str) -> StatusError:
    """Return the 403 of a write that is never allowed."""
    message = f'{kind.qualified_plural} "{name}" is forbidden: {why}'
    return StatusError(403, message, details=details_of(kind, name))


def invalid(kind: ResourceKind, name: str, errors: Sequence[FieldError]) -> StatusError:
    """Return the 422 that lists every wrong field."""
    listed = [f"{error.field}: {error.message}" for error in errors]
    joined = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
    details = {**details_of(kind, name), "kind": kind.name}
    details["causes"] = list(errors)
    return StatusError(422, f'{kind.qualified_name} "{name}" is invalid: {joined}', details=details)


def raw_error(message: str) -> StatusError:
    """Return the 500 by which the real server lets an inner error show."""
    return StatusError(500, message, "")


def rejected_patch() -> StatusError:
    """Return the 422 of a patch that cannot be applied; the real server says no more either."""
    return StatusError(422, "the server rejected our request due to an error in our request")


def undecodable_patch(why: str) -> StatusError:
    """Return the 422 of a patch whose result does not fit the type."""
    details = {"causes": [FieldError("patch", "FieldValueInvalid", why)]}
    return StatusError(422, f' "" is invalid: patch: Invalid value: {why}', details=details)


def unsupported_media_type(sent: str, accepted: Sequence[str]) -> StatusError:
    """Return the 415 of a body that is not JSON."""
    message = (
        f"the body of the request was in an unknown format ({sent}) - accepted media types"
        f" include: {', '.join(accepted)}"
    )
    return StatusError(415, message)


def too_large_version(asked: int, current: int) -> StatusError:
    """Return the 504 of a read at a version that does not exist yet."""
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return StatusError(504, message, details={"causes": causes}, retry_after=1)
