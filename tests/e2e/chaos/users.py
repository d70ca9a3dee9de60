"""What users ask of a cluster: Services of all types, and volumes."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import Json
from ccm.model.service import SOURCE_RANGES
from ccm.providers.simulated.load_balancers import PREFIX
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.records import Volume
from tests.e2e.chaos.kubelets import unless
from tests.support.environment import SERVICES, VOLUMES, persistent_volume

UNKNOWN = f"{PREFIX}colour"
"""An annotation that the provider of the simulated cloud refuses."""
LATE = 0.2  # seconds


def service(name: str, ports: Sequence[Any] = ((80, "TCP"),), **spec: Any) -> Json:
    """A Service that wants a balancer, with pairs of port and protocol."""
    wanted = {"type": "LoadBalancer", "selector": {"app": "web"}, **spec, "ports": listed(ports)}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": wanted}


def listed(ports: Sequence[Any]) -> list[Json]:
    return [
        {"name": f"{protocol.lower()}-{port}", "port": port, "protocol": protocol}
        for port, protocol in ports
    ]


class Users:
    """They change their minds. A Service may be gone, or not yet gone, when they do."""

    def __init__(self, kube: Kube, cloud: CloudAdmin) -> None:
        self._kube, self._cloud = kube, cloud

    async def ask(self, name: str, spec: Json, annotations: Mapping[str, str]) -> None:
        body = service(name, **spec)
        body["metadata"]["annotations"] = annotations
        with unless(409):  # the one before is still going
            await self._kube.post(SERVICES, body)

    async def change(self, name: str, spec: Json) -> None:
        """Other ports, ranges or traffic policy; the one before, still going, may not have them."""
        with unless(422):
            await self._patch(name, {"spec": spec | _ports_in(spec)})

    async def retype(self, name: str, kind: str) -> None:
        """Another type, without what only a balancer has."""
        body: Json = {"spec": {"type": kind}}
        if kind != "LoadBalancer":
            body["spec"] |= dict.fromkeys(("loadBalancerSourceRanges", "externalTrafficPolicy"))
            body["metadata"] = {"annotations": {SOURCE_RANGES: None}}
        await self._patch(name, body)

    async def flap(self, name: str) -> None:
        """It wants no balancer, and at once wants one after all."""
        await self.retype(name, "ClusterIP")
        await self.retype(name, "LoadBalancer")

    async def annotate(self, name: str, annotations: Mapping[str, str | None]) -> None:
        await self._patch(name, {"metadata": {"annotations": annotations}})

    async def invalidate(self, name: str) -> None:
        await self.annotate(name, {UNKNOWN: "blue"})

    async def fix(self, name: str) -> None:
        await self.annotate(name, {UNKNOWN: None})

    async def drop(self, name: str) -> None:
        with unless(404):
            await self._kube.request("DELETE", f"{SERVICES}/{name}")

    async def volume(self, handle: str, zones: Sequence[str], is_late: bool) -> None:
        """A volume and the PersistentVolume for it; late: the cloud has it a while afterwards."""
        make = Volume(handle, tuple(zones), "region-1")
        if not is_late:
            await self._cloud.add_volume(make)
        await self._kube.post(VOLUMES, persistent_volume(f"pv-{handle}", handle))
        if is_late:
            await asyncio.sleep(LATE)  # the fault, not a wait
            await self._cloud.add_volume(make)

    async def _patch(self, name: str, body: Json) -> None:
        with unless(404):
            await self._kube.patch(f"{SERVICES}/{name}", MERGE_PATCH, body)


def _ports_in(spec: Json) -> Json:
    return {"ports": listed(spec["ports"])} if "ports" in spec else {}
