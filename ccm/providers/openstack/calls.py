"""A request to OpenStack that a plan consists of, decided upon and not made yet."""

from dataclasses import dataclass

from ccm.model.objects import Json


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One request; `operation` is its name in metrics, `service` the class of its quota."""

    operation: str
    service: str
    method: str
    path: str
    body: Json | None = None
