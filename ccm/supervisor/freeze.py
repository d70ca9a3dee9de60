"""The freeze of deletions for all replicas, which is in their Lease; the command `deletions`."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from ccm.errors import KubernetesError, Unreachable
from ccm.kube.client import Kube, about
from ccm.kube.lease import LeaseClient
from ccm.model.objects import Json, mapping
from ccm.supervisor.deletion_state import NO_REASON, Freeze, freeze_in, new_freeze
from ccm.supervisor.deletions import DeletionGovernor

log = logging.getLogger(__name__)

FROZEN = "ccm-supervisor/deletions-frozen"
"""The annotation; with any value no replica deletes a Node."""
ATTEMPTS = 5  # to write it, when others write the Lease meanwhile
WRITE_TIMEOUT = 5.0  # seconds for all of them; the command waits a little longer


class SharedFreeze:
    """The freeze in the Lease, as last read by this replica's election.

    Who holds the Lease knows it: a renewal fails when the Lease was written since it was read.
    """

    def __init__(self, kube: Kube, lease: LeaseClient) -> None:
        self._kube, self._lease = kube, lease

    def get(self) -> Freeze | None:
        """The freeze; a value that someone wrote by hand is its reason."""
        value = self._lease.annotations.get(FROZEN)
        if value is None:
            return None
        try:
            freeze = freeze_in(orjson.loads(value))
        except ValueError:
            freeze = None
        return freeze or Freeze(value or NO_REASON, "unknown", "an unknown time")

    async def set(self, freeze: Freeze | None) -> None:
        """Write it, on the leader or a standby; raises `KubernetesError` or `Unreachable`."""
        deadline = time.monotonic() + WRITE_TIMEOUT
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._write(freeze, deadline)
                return
            except KubernetesError as error:
                if error.status != 409 or attempt == ATTEMPTS:
                    raise

    async def _write(self, freeze: Freeze | None, deadline: float) -> None:
        path = self._lease.path
        lease = about(path, await self._kube.request("GET", path, timeout=_left(deadline)))
        metadata = mapping(lease.get("metadata"))
        annotations = {**mapping(metadata.get("annotations"))}
        if freeze is None and FROZEN not in annotations:
            return
        annotations.pop(FROZEN, None)
        if freeze is not None:
            annotations[FROZEN] = orjson.dumps(freeze).decode()
        body = lease | {"metadata": {**metadata, "annotations": annotations}}
        answer = about(path, await self._kube.put(path, body, _left(deadline)))
        written = mapping(mapping(answer.get("metadata")).get("annotations"))
        if written.get(FROZEN) != annotations.get(FROZEN):
            raise Unreachable(f"{path}: the answer to our write is not what we wrote")
        self._lease.take_annotations(answer)


def _left(deadline: float) -> float:
    return deadline - time.monotonic()


class DeletionCommands:
    """What people see and switch, on whichever replica; `shared` is None without an election.

    `standby` says why this replica deletes nothing: empty while it leads.
    """

    def __init__(
        self,
        governor: DeletionGovernor,
        shared: SharedFreeze | None,
        standby: Callable[[], str],
    ) -> None:
        self._governor, self._shared, self._standby = governor, shared, standby

    async def answer(self, request: Json) -> Mapping[str, Any]:
        """The control command `deletions`."""
        match request.get("action"):
            case "show":
                return {**self._governor.show(), "standby": self._standby()}
            case "freeze":
                why, by = request.get("reason"), request.get("by")
                return await self._freeze(new_freeze(str(why or ""), str(by or "unknown")))
            case "allow":
                return await self._allow()
            case other:
                return {"error": f"unknown action {other!r}; use show, freeze or allow"}

    async def _freeze(self, freeze: Freeze) -> Json:
        if self._shared is None:
            return self._governor.freeze(freeze)
        try:
            await self._shared.set(freeze)
        except (KubernetesError, Unreachable) as error:
            return {"error": f"deletions are not frozen: the Lease was not written: {error}"}
        log.warning("deletions frozen", extra={"why": freeze.why, "by": freeze.by})
        return {
            "ok": "no node is deleted by any replica, from its next renewal of the Lease on, until"
            " 'ccm-supervisor deletions allow'"
        }

    async def _allow(self) -> Json:
        if self._shared is not None:
            try:
                await self._shared.set(None)
            except (KubernetesError, Unreachable) as error:
                return {"error": f"the freeze is not lifted: the Lease was not written: {error}"}
        answer, standby = self._governor.allow(), self._standby()
        if standby and "ok" in answer:
            return {
                "ok": f"no freeze is left; a hold ends where this is run on who leads: {standby}"
            }
        return answer
