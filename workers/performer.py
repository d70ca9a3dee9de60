"""The one place where a worker writes to Kubernetes."""

from dataclasses import dataclass
from typing import assert_never

from ccm.bus.sockets import Permission
from ccm.errors import KubernetesError
from ccm.kube.client import JSON_PATCH, METADATA_ONLY, STRATEGIC_PATCH, Check, Kube
from ccm.model.objects import Json
from ccm.model.writes import Delete, Merge, Patch, Write

WRITE_TIMEOUT = 30.0  # seconds a write may take at the most


@dataclass
class Performer:
    """Sends writes while this process leads; the client's fence checks it as the bytes leave.

    `grace` is how many seconds after the end of the permission the lease still keeps others from
    acting: a write that has left by then may still be answered, so no write may take longer.
    """

    kube: Kube
    permission: Permission
    grace: float

    async def perform(self, write: Write, check: Check = lambda: None) -> Json:
        """The API server's answer, for a patch the object, or its metadata; raises `NotLeading`.

        A deletion cannot test what it was decided on: `check` does as it leaves, with `Outdated`.
        """
        timeout = min(WRITE_TIMEOUT, max(self.permission.seconds_left, 0.0) + self.grace)
        match write:
            case Patch(path, operations, merge):
                if merge and (answer := await self._merged(path, merge, timeout)):
                    return answer
                return await self.kube.patch(path, JSON_PATCH, operations, timeout)
            case Merge(path, body):
                return await self.kube.patch(path, STRATEGIC_PATCH, body, timeout, METADATA_ONLY)
            case Delete(path, uid):
                body = {"preconditions": {"uid": uid}}
                return await self.kube.request("DELETE", path, body, timeout=timeout, check=check)
            case _:
                assert_never(write)

    async def _merged(self, path: str, body: Json, timeout: float) -> Json | None:
        """The metadata of the answer; None when there is another version of the object by now."""
        try:
            return await self.kube.patch(path, STRATEGIC_PATCH, body, timeout, METADATA_ONLY)
        except KubernetesError as error:
            if error.status != 409:
                raise
            return None
