"""Errors as Kubernetes writes them: an HTTP code and a Status object."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ccm.errors import TEST_FAILED
from ccm.sandbox.kubernetes.kinds import ResourceKind
from ccm.sandbox.kubernetes.objects import Object

REASONS = {
    400: "BadRequest",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
}


@dataclass(eq=False)
class StatusError(Exception):
    """An error that is sent to the client as a Status; without a reason, the code has one."""

    code: int
    message: str
    reason: str = ""
    details: Object = field(default_factory=dict)

    def status(self) -> Object:
        body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        reason = self.reason or REASONS[self.code]
        body.update(message=self.message, reason=reason, code=self.code)
        if self.details:
            body["details"] = self.details
        return body


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


def already_exists(kind: ResourceKind, name: str) -> StatusError:
    """Return the 409 of a create whose name is taken."""
    message = f'{kind.qualified_plural} "{name}" already exists'
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


def invalid_field(kind: ResourceKind, obj: Object, field: str, why: str) -> StatusError:
    """Return the 422 of a field that may not be so."""
    return _wrong_field(kind, obj, {"field": field, "reason": "FieldValueInvalid", "message": why})


def forbidden_field(kind: ResourceKind, obj: Object, field: str, why: str) -> StatusError:
    """Return the 422 of a field that the client may not set so."""
    cause = {"field": field, "reason": "FieldValueForbidden", "message": why}
    return _wrong_field(kind, obj, cause)


def _wrong_field(kind: ResourceKind, obj: Object, cause: Object) -> StatusError:
    name = obj["metadata"]["name"]
    details = {**details_of(kind, name), "kind": kind.name, "causes": [cause]}
    message = f'{kind.name} "{name}" is invalid: {cause["field"]}: {cause["message"]}'
    return StatusError(422, message, details=details)


def rejected_patch() -> StatusError:
    """Return the 422 of a patch that cannot be applied; the real server says no more either."""
    return StatusError(422, TEST_FAILED)


def unsupported_media_type(sent: str, accepted: Sequence[str]) -> StatusError:
    """Return the 415 of a body that is not JSON."""
    message = (
        f"the body of the request was in an unknown format ({sent}) - accepted media types"
        f" include: {', '.join(accepted)}"
    )
    if "protobuf" in sent:
        message += "; 'kubectl create -f' and 'kubectl apply -f' send JSON"
    return StatusError(415, message)
