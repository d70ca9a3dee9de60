"""Each thing that a provider does, with the state it needs: to be tried under faults and breaks."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import count
from typing import Any

from ccm.cloud.gate import invoke
from ccm.cloud.interface import ListsOwned
from ccm.cloud.testkit.adapter import Machine, Untestable
from ccm.cloud.testkit.gate import Interruption
from ccm.cloud.testkit.harness import Harness, node_of, port, service, volume
from ccm.errors import CloudError
from ccm.model.cloud import Route
from ccm.model.objects import Node

CIDR = "10.244.7.0/24"


class Operation(ABC):
    """`prepare` the cloud, `run` once, and `check` that the cloud is as it should be then."""

    @abstractmethod
    def part(self, harness: Harness) -> Any:
        """The part of the provider that does it; raises `Untestable` where there is none."""

    @abstractmethod
    async def prepare(self, harness: Harness) -> None: ...

    @abstractmethod
    async def run(self, harness: Harness) -> Any: ...

    async def result_or_error(self, harness: Harness) -> Any:
        """What running it once comes to: its result, or the error that it raised."""
        try:
            return await self.run(harness)
        except CloudError as error:
            return error

    async def check(self, harness: Harness) -> None:  # noqa: B027 - reads need none
        """A read leaves nothing to check."""


class Describe(Operation):
    """Two machines by ID."""

    def part(self, harness: Harness) -> Any:
        return harness.instances

    async def prepare(self, harness: Harness) -> None:
        self.machines = await harness.machines(2)

    async def run(self, harness: Harness) -> Any:
        return await harness.call(harness.instances.describe, [node_of(m) for m in self.machines])


class DescribeVolumes(Operation):
    """One volume."""

    def part(self, harness: Harness) -> Any:
        return harness.volumes

    async def prepare(self, harness: Harness) -> None:
        self.disk = await invoke(harness.adapter.create_volume, harness.volume_sources[0])

    async def run(self, harness: Harness) -> Any:
        return await harness.call(harness.volumes.describe, [volume("pv-1", self.disk.spec)])


class Ensure(Operation):
    """A balancer for a new Service."""

    def part(self, harness: Harness) -> Any:
        return harness.load_balancers

    async def prepare(self, harness: Harness) -> None:
        self.machines: Sequence[Machine] = await harness.machines(3)
        self.service = service(ports=[port(80), port(443, node_port=30443)])

    @property
    def backends(self) -> list[Node]:
        return [node_of(machine) for machine in self.machines]

    async def run(self, harness: Harness) -> Any:
        return await harness.call(harness.load_balancers.ensure, self.service, self.backends)

    async def check(self, harness: Harness) -> None:
        await harness.check_balancer(self.service, self.machines)


class Change(Ensure):
    """Other ports, backends and health check for a balancer that exists."""

    async def prepare(self, harness: Harness) -> None:
        await super().prepare(harness)
        await harness.ensure(
            service(ports=[port(80), port(81, node_port=30081)]), self.machines[:1]
        )
        local: dict[str, Any] = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}
        self.service = service(ports=[port(80, node_port=30099), port(443)], **local)


class Get(Ensure):
    """The balancer of a Service that has one."""

    async def prepare(self, harness: Harness) -> None:
        await super().prepare(harness)
        await harness.ensure(self.service, self.machines)

    async def run(self, harness: Harness) -> Any:
        return await harness.call(harness.load_balancers.get, self.service)


class Owned(Get):
    """All balancers with our mark."""

    def part(self, harness: Harness) -> Any:
        return owned_lister(harness)

    async def run(self, harness: Harness) -> Any:
        return await harness.call(self.part(harness).owned)


class UpdateNodes(Ensure):
    """Other backends for a balancer that exists."""

    async def prepare(self, harness: Harness) -> None:
        await super().prepare(harness)
        await harness.ensure(self.service, self.machines[:2])
        self.machines = self.machines[1:]

    async def run(self, harness: Harness) -> Any:
        return await harness.call(harness.load_balancers.update_nodes, self.service, self.backends)


class Delete(Get):
    """A balancer with everything that belongs to it."""

    async def prepare(self, harness: Harness) -> None:
        self.resources = set(await invoke(harness.adapter.balancer_resources))
        await super().prepare(harness)

    async def run(self, harness: Harness) -> Any:
        return await harness.call(harness.load_balancers.delete, self.service)

    async def check(self, harness: Harness) -> None:
        assert await harness.observed_balancer(self.service) is None
        left = set(await invoke(harness.adapter.balancer_resources)) - self.resources
        assert not left, "the load balancer is gone and these are left"


class CreateRoute(Operation):
    """A route to a machine that has none."""

    def part(self, harness: Harness) -> Any:
        return harness.routes

    async def prepare(self, harness: Harness) -> None:
        (self.machine,) = await harness.machines(1)
        self.node: Node = node_of(self.machine)

    async def run(self, harness: Harness) -> Any:
        return await harness.call(harness.routes.create, self.node, CIDR)

    async def check(self, harness: Harness) -> None:
        (route,) = await harness.call(harness.routes.list, [self.node])
        assert (route.cidr, route.node) == (CIDR, self.node.name)
        (current,) = await invoke(harness.adapter.list_routes)
        assert (current.cidr, current.provider_id) == (CIDR, self.machine.provider_id)


class ListRoutes(CreateRoute):
    """One route."""

    async def prepare(self, harness: Harness) -> None:
        await super().prepare(harness)
        await harness.until_done(harness.routes.create, self.node, CIDR)

    async def run(self, harness: Harness) -> Any:
        return await harness.call(harness.routes.list, [self.node])


class DeleteRoute(ListRoutes):
    """A route that exists."""

    async def prepare(self, harness: Harness) -> None:
        await super().prepare(harness)
        (self.route,) = await harness.call(harness.routes.list, [self.node])

    async def run(self, harness: Harness) -> Any:
        route: Route = self.route
        return await harness.call(harness.routes.delete, route)

    async def check(self, harness: Harness) -> None:
        assert not await harness.call(harness.routes.list, [self.node])
        assert not await invoke(harness.adapter.list_routes)


WRITES = (Ensure, Change, UpdateNodes, Delete, CreateRoute, DeleteRoute)
READS = (Describe, DescribeVolumes, Get, Owned, ListRoutes)
OPERATIONS = (*READS, *WRITES)


async def read_interrupted_everywhere(harness: Harness, operation: Operation) -> Any:
    """Its result after it was interrupted at each of its calls in turn, and raised every time."""
    for number in count(1):
        harness.gate.interrupt_call(number, Interruption.FAILED)
        outcome = await operation.result_or_error(harness)
        if not harness.gate.clear_interruption():
            break
        assert isinstance(outcome, CloudError), f"call {number} failed and it returned a part"
    return outcome


def owned_lister(harness: Harness) -> ListsOwned:
    """The part that lists balancers by their mark."""
    part = harness.load_balancers
    if not isinstance(part, ListsOwned):
        raise Untestable("the provider does not list the load balancers it owns")
    return part
