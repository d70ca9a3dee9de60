"""The one place where a worker writes to Kubernetes, and only with permission."""

from dataclasses import dataclass
from typing import assert_never

from ccm.bus.port import Permission
from ccm.kube.client import JSON_PATCH, STRATEGIC_PATCH, Kube
from ccm.model.objects import Json

TIMEOUT = 30.0  # seconds a write may take at the most


@dataclass(frozen=True, slots=True)
class Patch:
    """A JSON patch of one object; its `test` operations say what it was planned against."""

    path: str
    operations: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Merge:
    """A strategic merge patch of one object: conditions merge by type, the others stay.

    With `metadata.uid` in it, it fails when the object is another one by now.
    """

    path: str
    body: Json


@dataclass(frozen=True, slots=True)
class Delete:
    """The deletion of one object, if it is still the one with this UID."""

    path: str
    uid: str


@dataclass
class Performer:
    """Sends writes while this worker may act.

    `grace` is how long after the end of the permission the lease still keeps others from acting:
    a write that has left by then may still be answered, so no write may take longer.
    """

    kube: Kube
    permission: Permission
    grace: float

    async def perform(self, write: Patch | Merge | Delete) -> Json:
        """The API server's answer, for a patch the object as it is now; raises `NoPermit`."""
        self.permission.check()
        timeout = min(TIMEOUT, self.permission.seconds_left + self.grace)
        match write:
            case Patch(path, operations):
                return await self.kube.patch(path, JSON_PATCH, operations, timeout)
            case Merge(path, body):
                return await self.kube.patch(path, STRATEGIC_PATCH, body, timeout)
            case Delete(path, uid):
                body = {"preconditions": {"uid": uid}}
                return await self.kube.request("DELETE", path, body, timeout=timeout)
            case _:
                assert_never(write)
