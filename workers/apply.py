"""The one place where a worker writes to Kubernetes, and only with permission."""

from dataclasses import dataclass
from typing import Any

from ccm.bus.port import Permission
from ccm.kube.client import JSON_PATCH, Kube
from ccm.model.node import Json

TIMEOUT = 30.0  # seconds a write may take at the most


@dataclass(frozen=True, slots=True)
class Patch:
    """A JSON patch of one object; its `test` operations say what it was planned against."""

    path: str
    operations: tuple[Json, ...]


@dataclass
class Performer:
    """Sends writes while this worker may act.

    `grace` is how long after the end of the permission the lease still keeps others from acting:
    a write that has left by then may still be answered, so no write may take longer.
    """

    kube: Kube
    permission: Permission
    grace: float

    async def perform(self, patch: Patch) -> Json:
        """The object as the API server has it after the patch; raises `NoPermit`."""
        self.permission.check()
        timeout = min(TIMEOUT, self.permission.seconds_left + self.grace)
        body: Any = patch.operations
        return await self.kube.patch(patch.path, JSON_PATCH, body, timeout)
