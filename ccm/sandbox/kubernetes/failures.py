"""Refusals as Kubernetes writes them: an HTTP code and a Status object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ccm.sandbox.kubernetes.kinds import Kind
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
class Cause:
    """One field that is wrong and why."""

    field: str
    reason: str
    message: str


@dataclass(eq=False)
class Failure(Exception):
    """A refusal; the server turns it into a response."""

    code: int
    message: str
    # None is the usual reason of the code; the real server leaves it out of raw errors ("").
    reason: str | None = None
    details: Object = field(default_factory=dict)
    retry_after: int | None = None

    def status(self) -> Object:
        """Return the Status object that is sent to the client."""
        details = dict(self.details)
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        body: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        reason = REASONS.get(self.code, "Unknown") if self.reason is None else self.reason
        if reason:
            body["reason"] = reason
        if details:
            body["details"] = details
        body["code"] = self.code
        return body


class Undecodable(Exception):
    """A body that the real server's Go types could not hold: 400, or 422 inside a patch."""


def details_of(kind: Kind, name: str) -> Object:
    details: Object = {"name": name} if name else {}
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.plural
    return details


def not_found(kind: Kind, name: str) -> Failure:
    message = f'{kind.qualified_plural} "{name}" not found'
    return Failure(404, message, details=details_of(kind, name))


def no_such_resource() -> Failure:
    return Failure(404, "the server could not find the requested resource", details={})


def already_exists(kind: Kind, name: str, *, terminating: bool = False) -> Failure:
    message = f'{kind.qualified_plural} "{name}" already exists'
    if terminating:
        message = f"object is being deleted: {message}"
    return Failure(409, message, "AlreadyExists", details_of(kind, name))


def conflict(kind: Kind, name: str, why: str) -> Failure:
    message = f'Operation cannot be fulfilled on {kind.qualified_plural} "{name}": {why}'
    return Failure(409, message, details=details_of(kind, name))


def modified(kind: Kind, name: str) -> Failure:
    why = "the object has been modified; please apply your changes to the latest version"
    return conflict(kind, name, f"{why} and try again")


def bad_request(message: str) -> Failure:
    return Failure(400, message)


def forbidden(kind: Kind, name: str, why: str) -> Failure:
    message = f'{kind.qualified_plural} "{name}" is forbidden: {why}'
    return Failure(403, message, details=details_of(kind, name))


def failed_precondition(kind: Kind, name: str, why: str) -> Failure:
    """Return the 409 of a delete, which for once names the kind and not the resource."""
    qualified = f"{kind.name}.{kind.group}" if kind.group else kind.name
    details = {**details_of(kind, name), "kind": kind.name}
    message = f'Operation cannot be fulfilled on {qualified} "{name}": {why}'
    return Failure(409, message, details=details)


def unsupported_option(options: str, field: str, value: object, supported: str) -> Failure:
    """Return the 422 of a query parameter, or of a member of DeleteOptions."""
    why = f"Unsupported value: {value}: supported values: {supported}"
    return _invalid_option(options, Cause(field, "FieldValueNotSupported", why))


def forbidden_option(options: str, field: str, why: str) -> Failure:
    """Return the 422 of options that contradict each other."""
    return _invalid_option(options, Cause(field, "FieldValueForbidden", f"Forbidden: {why}"))


def _invalid_option(options: str, cause: Cause) -> Failure:
    told = {"reason": cause.reason, "message": cause.message, "field": cause.field}
    details = {"group": "meta.k8s.io", "kind": options, "causes": [told]}
    message = f'{options}.meta.k8s.io "" is invalid: {cause.field}: {cause.message}'
    return Failure(422, message, details=details)


def terminating_namespace(kind: Kind, name: str, namespace: str) -> Failure:
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    refusal = forbidden(kind, name, why)
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    return Failure(403, refusal.message, details={**refusal.details, "causes": [cause]})


def expired(message: str) -> Failure:
    return Failure(410, message)


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> Failure:
    """Return the 422 that lists every wrong field."""
    told = [f"{cause.field}: {cause.message}" for cause in causes]
    joined = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    details: Object = {"name": name} if name else {}
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.name
    details["causes"] = [
        {"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes
    ]
    qualified = f"{kind.name}.{kind.group}" if kind.group else kind.name
    return Failure(422, f'{qualified} "{name}" is invalid: {joined}', details=details)


def needs_version(kind: Kind, name: str) -> Failure:
    """Return the 422 of an unconditional update where the kind allows none."""
    why = "Invalid value: 0: must be specified for an update"
    causes = [{"reason": "FieldValueInvalid", "message": why, "field": "metadata.resourceVersion"}]
    message = f'{kind.qualified_plural} "{name}" is invalid: metadata.resourceVersion: {why}'
    return Failure(422, message, details={**details_of(kind, name), "causes": causes})


def raw_error(message: str) -> Failure:
    """Return the 500 by which the real server lets an inner error show."""
    return Failure(500, message, "")


def rejected_patch() -> Failure:
    """Return the 422 of a patch that cannot be applied; the real server says no more either."""
    return Failure(422, "the server rejected our request due to an error in our request")


def undecodable_patch(why: str) -> Failure:
    causes = [{"reason": "FieldValueInvalid", "message": why, "field": "patch"}]
    return Failure(422, f' "" is invalid: patch: Invalid value: {why}', details={"causes": causes})


def unsupported_media_type(sent: str, accepted: Sequence[str]) -> Failure:
    message = (
        f"the body of the request was in an unknown format ({sent}) - accepted media types"
        f" include: {', '.join(accepted)}"
    )
    return Failure(415, message)


def too_large_version(asked: int, current: int) -> Failure:
    """Return the 504 of a read at a version that does not exist yet."""
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return Failure(504, message, details={"causes": causes}, retry_after=1)
