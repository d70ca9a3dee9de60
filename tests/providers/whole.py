"""The whole product on a real API server beside a lab: Nodes, ten Services, routes, a volume.

All is made, looked at with every command, found again after a restart, and deleted.
"""

import asyncio
import json
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import yaml

from ccm.kube.client import Kube
from ccm.model.objects import Json
from ccm.sandbox.kubelets import registration
from tests.providers.real_nodes import RealNodes
from tests.support.deadlines import timeout
from tests.support.environment import (
    NODES,
    SERVICES,
    VOLUMES,
    persistent_volume,
    until_renewed,
)
from tests.support.kube.cluster import RealCluster
from tests.support.running import Supervisor, Where, until

NODE_COUNT = 30
FLAGS = (
    "--controllers=*",
    "--cluster-cidr=10.244.0.0/16",
    "--allocate-node-cidrs=true",
    "--configure-cloud-routes=true",
    "--route-reconciliation-period=1s",
    "--node-monitor-period=500ms",
    "--node-deletion-confirmation-period=0",
)
FOREIGN = "foreign"
"""A Node of another cloud, whose kubelet is silent."""
LOCAL = {"externalTrafficPolicy": "Local"}
STICKY = {"sessionAffinity": "ClientIP"}
RANGES = {"loadBalancerSourceRanges": ["192.0.2.0/24"]}
TWO_PORTS = {"ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}]}
UDP = {"ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]}
HOLDS_NOTHING = "orphans: none\n"


class WholeCloud(RealNodes, ABC):
    """A cluster, and a cloud that its test is about."""

    provider: ClassVar[str]
    looked_at: ClassVar[str]
    """What is in a call for load balancers."""
    driver: ClassVar[str]
    services: ClassVar[Mapping[str, tuple[Mapping[str, str], Json]]]

    def __init__(self, api: Kube, cluster: RealCluster, config: Path) -> None:
        super().__init__(api)
        self.where = Where(config.parent, cluster.kubeconfig("ccm"), config)

    @property
    def flags(self) -> list[str]:
        return [*self.where.flags, f"--cloud-provider={self.provider}", *FLAGS]

    @abstractmethod
    def add_machine(self, name: str) -> None: ...

    @abstractmethod
    def delete_machine(self, name: str) -> None: ...

    @abstractmethod
    def add_disk(self) -> tuple[str, str]:
        """A disk's handle, and its zone as a label has it."""

    @abstractmethod
    def routes(self) -> Collection[str]: ...

    @abstractmethod
    def calls(self) -> Sequence[str]:
        """All since `forget_calls`."""

    @abstractmethod
    def writes(self) -> Sequence[str]: ...

    @abstractmethod
    def forget_calls(self) -> None: ...

    @abstractmethod
    def left(self) -> Sequence[str]:
        """What there is of load balancers."""

    # What is done

    async def register(self, number: int) -> None:
        self.add_machine(name_of(number))
        await self.api.post(NODES, registration(name_of(number), f"10.244.{number}.0/24"))

    async def serve(self, name: str) -> None:
        annotations, spec = self.services[name]
        wanted = {"type": "LoadBalancer", "ports": [{"name": "http", "port": 80}], **spec}
        meta = {"name": name, "annotations": {**annotations}}
        await self.api.post(SERVICES, {"metadata": meta, "spec": wanted})

    async def addresses(self) -> dict[str, str]:
        found = dict[str, str]()
        for one in (await self.api.get(SERVICES))["items"]:
            if one["spec"]["type"] == "LoadBalancer":
                ingress = one["status"]["loadBalancer"].get("ingress") or [{}]
                found[one["metadata"]["name"]] = ingress[0].get("ip", "")
        return found

    async def are_served(self) -> bool:
        return all((await self.addresses()).values())

    async def are_mine_initialized(self) -> bool:
        nodes = await self.nodes()
        nodes.pop(FOREIGN, None)
        return not any(one.is_uninitialized for one in nodes.values())

    async def are_routed(self) -> bool:
        return len(self.routes()) == len(await self.nodes()) - 1  # the foreign one has none

    async def zone_of_volume(self) -> str:
        found = await self.api.get(f"{VOLUMES}/data")
        labels = found["metadata"].get("labels", {})
        return str(labels.get("topology.kubernetes.io/zone", ""))

    async def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """A command of the command line, as a process."""
        command = [sys.executable, "-m", "ccm.cli.main", *words, *self.flags]
        return await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=timeout()
        )

    async def orphans(self) -> str:
        done = await self.run("orphans", "list")
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def plan(self) -> Json:
        done = await self.run("plan", "-o", "json")
        assert done.returncode == 0, done.stderr + done.stdout[-3000:]
        return dict(json.loads(done.stdout))


def name_of(number: int) -> str:
    return f"node-{number}"


async def grant(api: Kube, page: Path, name: str, user: str = "ccm") -> None:
    """The Role and RoleBinding of a page, for this user."""
    text = page.read_text(encoding="utf-8")
    blocks = [one.partition("```")[0] for one in text.split("```yaml\n")[1:]]
    documents = [
        one for block in blocks if "kind: Role" in block for one in yaml.safe_load_all(block)
    ]
    role = next(
        one for one in documents if one["kind"] == "Role" and one["metadata"]["name"] == name
    )
    group = "rbac.authorization.k8s.io"
    at = f"/apis/{group}/v1/namespaces/{role['metadata']['namespace']}"
    await api.post(f"{at}/roles", role)
    reference = {"apiGroup": group, "kind": "Role", "name": name}
    to = [{"apiGroup": group, "kind": "User", "name": user}]
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": to}
    await api.post(f"{at}/rolebindings", binding)


async def check_all(whole: WholeCloud) -> None:
    """All of it, in the order of a cluster's life."""
    for number in range(NODE_COUNT):
        await whole.register(number)
    for name in whole.services:
        await whole.serve(name)
    handle, zone = whole.add_disk()
    await whole.api.post(VOLUMES, persistent_volume("data", handle, driver=whole.driver))
    checked = await whole.run("check")
    assert checked.returncode == 0, checked.stdout
    foreign = registration(FOREIGN)
    foreign["spec"]["providerID"] = "other:///nowhere"
    await whole.api.post(NODES, foreign)
    await check_start(whole, zone)
    await check_restart(whole)
    await check_end(whole)


async def check_start(whole: WholeCloud, zone: str) -> None:
    planned = await whole.plan()
    assert whole.left() == []
    made = {"load balancer": len(whole.services), "route": NODE_COUNT}
    kinds = [str(one["about"]) for one in planned["cloud"]]
    for kind, count in made.items():
        assert sum(one.startswith(f"{kind} ") for one in kinds) == count, kinds
    whole.forget_calls()
    began = time.monotonic()
    with Supervisor(whole.where, *whole.flags) as supervisor:
        await until("all Nodes are initialized", whole.are_mine_initialized)
        print(f"{NODE_COUNT} Nodes: {time.monotonic() - began:.1f} s from the start")
        await until("all have addresses", whole.are_served)
        await until("all have routes", whole.are_routed)
        await until("the volume has its zone", whole.zone_of_volume)
        print(f"all: {time.monotonic() - began:.1f} s, {len(whole.calls())} calls")
        assert await whole.zone_of_volume() == zone
        assert len(whole.services) == len(await whole.addresses()) == 10
        assert supervisor.end() == 0
    assert await whole.orphans() == HOLDS_NOTHING
    whole.forget_calls()
    planned = await whole.plan()
    assert (planned["kubernetes"], planned["cloud"]) == ([], []), planned
    assert whole.writes() == []


async def check_restart(whole: WholeCloud) -> None:
    """Reads only; then a machine goes."""
    whole.forget_calls()
    with Supervisor(whole.where, *whole.flags, name="again") as again:
        await until("it has looked", lambda: whole.looked_at in " ".join(whole.calls()))
        await until_renewed(whole.api)
        assert whole.writes() == []
        print(f"restarted: {len(whole.calls())} calls, none writes")
        gone = name_of(0)
        await whole.stop_kubelets(gone, FOREIGN)
        began = time.monotonic()
        whole.delete_machine(gone)
        await whole.until_gone(gone)
        print(f"its machine gone, a Node is deleted after {time.monotonic() - began:.1f} s")
        await until("its route is gone", whole.are_routed)
        assert FOREIGN in await whole.nodes()
        assert again.end() == 0


async def check_end(whole: WholeCloud) -> None:
    """Everything is deleted, and nothing is left."""
    with Supervisor(whole.where, *whole.flags, name="last") as last:
        for name in whole.services:
            await whole.api.request("DELETE", f"{SERVICES}/{name}")
        for name in await whole.nodes():
            if name != name_of(1):  # without any Node no controller takes routes away
                await whole.api.request("DELETE", f"{NODES}/{name}")

        async def is_clean() -> bool:
            return not whole.left() and not await whole.addresses() and len(whole.routes()) == 1

        await until("nothing is left", is_clean)
        assert last.end() == 0
    assert await whole.orphans() == HOLDS_NOTHING
