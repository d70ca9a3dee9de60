"""The machines of a cluster and the kubelets on them: nodes with a pod network of each family."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from uuid import uuid4

from ccm.errors import KubernetesError
from ccm.kube.client import MERGE_PATCH, STRATEGIC_PATCH, Kube
from ccm.model.objects import Json
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.records import Machine
from ccm.sandbox.kubelets import ready_condition, registration
from tests.support.environment import NODES
from tests.support.running import until
from workers.service.backends import EXCLUDE_LABEL

CLUSTER_CIDR = "10.240.0.0/12,fd00:244::/48"


def pod_networks(number: int) -> list[str]:
    """One network of each family; those of two numbers have nothing in common."""
    return [f"10.{240 + number // 256}.{number % 256}.0/24", f"fd00:244:0:{number:x}::/64"]


def dual_stack(name: str, networks: Iterable[str]) -> Json:
    """The Node that a kubelet creates, with pod networks as kube-controller-manager gives them."""
    body, listed = registration(name), list(networks)
    body["spec"] |= {"podCIDR": listed[0], "podCIDRs": listed}
    return body


class Nodes:
    """Who joins, leaves, stops and ends. `expected` are the Nodes that nobody may delete, by name.

    A Node whose machine ended is no longer expected: the node lifecycle controller deletes it.
    """

    def __init__(self, kube: Kube, cloud: CloudAdmin) -> None:
        self._kube, self._cloud = kube, cloud
        self.expected: dict[str, str] = {}
        self._system_uuids: dict[str, str] = {}  # of the machine that now has a name

    async def join(self, name: str, network: int) -> None:
        await self._cloud.add([Machine(name, zone="zone-b", region="region-1")])
        self._system_uuids[name] = str(uuid4())
        await self.register(name, network)

    async def register(self, name: str, network: int) -> None:
        """The kubelet of a machine that runs makes its Node, which has other pods than before."""
        body = dual_stack(name, pod_networks(network))
        body["status"]["nodeInfo"]["systemUUID"] = self._system_uuids[name]

        async def create() -> list[Json]:
            made = []
            with unless(409):  # another controller holds the one before
                made.append(await self._kube.post(NODES, body))
            return made

        [node] = await until(f"{name} can register", create)
        self.expected[name] = node["metadata"]["uid"]

    async def add_foreign(self, name: str, network: int) -> None:
        """A Node of another cloud, whose kubelet is silent."""
        body = dual_stack(name, pod_networks(network))
        del body["spec"]["taints"]
        body["spec"]["providerID"] = f"aws:///zone-z/{name}"
        body["status"]["conditions"] = [ready_condition(False)]
        self.expected[name] = (await self._kube.post(NODES, body))["metadata"]["uid"]

    async def unregister(self, name: str) -> None:
        """Someone deletes the Node of a machine that runs on."""
        del self.expected[name]
        await self._kube.request("DELETE", f"{NODES}/{name}")

    async def leave(self, name: str, node_first: bool) -> None:
        """The cluster gets smaller: the Node is deleted and its machine ended, in either order."""
        if node_first:
            await self.unregister(name)
        await self._cloud.terminate(name)
        if not node_first:
            await self.unregister(name)

    async def repair(self, name: str, network: int) -> None:
        """The machine is replaced by another one of its name, with a Node of its own."""
        await self.leave(name, node_first=True)
        await self.join(name, network)

    async def stop(self, name: str) -> None:
        await self._cloud.stop(name)
        await self._report(name, is_ready=False)

    async def start(self, name: str) -> None:
        await self._cloud.start(name)
        await self._report(name, is_ready=True)

    async def end(self, name: str, how: str) -> None:
        """The machine ends without a word to the cluster.

        A Node that was not matched to its machine before is for people to delete: docs/deletion.md.
        """
        is_matched = "providerID" in (await self._kube.get(f"{NODES}/{name}"))["spec"]
        await (self._cloud.terminate if how == "terminate" else self._cloud.vanish)(name)
        if not is_matched:
            await self.unregister(name)
            return
        del self.expected[name]
        with unless(404):  # one that was stopped may be deleted by now
            await self._report(name, is_ready=False)

    async def end_together(self, ends: Sequence[tuple[str, str]]) -> None:
        await asyncio.gather(*(self.end(name, how) for name, how in ends))

    async def exclude(self, name: str, is_excluded: bool) -> None:
        """Whether balancers are to leave the node out."""
        labels = {EXCLUDE_LABEL: "" if is_excluded else None}
        body = {"metadata": {"labels": labels}}
        await self._kube.patch(f"{NODES}/{name}", MERGE_PATCH, body)

    async def _report(self, name: str, is_ready: bool) -> None:
        body = {"status": {"conditions": [ready_condition(is_ready)]}}
        await self._kube.patch(f"{NODES}/{name}/status", STRATEGIC_PATCH, body)


@contextmanager
def unless(*statuses: int) -> Iterator[None]:
    """Let pass that the API server answers so: 404 when it is gone, 409 when it is there."""
    try:
        yield
    except KubernetesError as error:
        if error.status not in statuses:
            raise
