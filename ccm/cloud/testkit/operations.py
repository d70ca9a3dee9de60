"""Each thing that a provider does, with the state it needs: to be tried under faults and breaks."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import count
from typing import Any

from ccm.cloud.gate import invoke
from ccm.cloud.interface import ListsOwned
from ccm.cloud.testkit.adapter import Machine, NotShown
from ccm.cloud.testkit.gate import Break
from ccm.cloud.testkit.objects import node_of, port, service, volume
from ccm.cloud.testkit.world import World
from ccm.errors import CloudError
from ccm.model.cloud import Route
from ccm.model.node import Node

CIDR = "10.244.7.0/24"


class Operation(ABC):
    """`prepare` the cloud, `run` once, and `check` that the cloud is as it should be then."""

    @abstractmethod
    async def prepare(self, world: World) -> None: ...

    @abstractmethod
    async def run(self, world: World) -> Any: ...

    async def outcome(self, world: World) -> Any:
        """What running it once comes to: its result, or the error that it raised."""
        try:
            return await self.run(world)
        except CloudError as error:
            return error

    async def check(self, world: World) -> None:  # noqa: B027 (a read leaves nothing to check)
        """The cloud is as it should be after the operation."""


class Describe(Operation):
    async def prepare(self, world: World) -> None:
        self.machines = await world.machines(2)

    async def run(self, world: World) -> Any:
        return await world.ask(world.instances.describe, [node_of(m) for m in self.machines])


class DescribeVolumes(Operation):
    async def prepare(self, world: World) -> None:
        source = min(world.volumes.csi_drivers | world.volumes.legacy_sources)
        self.disk = await invoke(world.adapter.create_volume, source)

    async def run(self, world: World) -> Any:
        return await world.ask(world.volumes.describe, [volume("pv-1", self.disk.spec)])


class Ensure(Operation):
    """A balancer for a new Service."""

    async def prepare(self, world: World) -> None:
        self.machines: Sequence[Machine] = await world.machines(3)
        self.service = service(ports=[port(80), port(443, node_port=30443)])

    async def run(self, world: World) -> Any:
        hosts = [node_of(machine) for machine in self.machines]
        return await world.ask(world.load_balancers.ensure, self.service, hosts)

    async def check(self, world: World) -> None:
        await world.check_balancer(self.service, self.machines)


class Change(Ensure):
    """Other ports, hosts and health check for a balancer that exists."""

    async def prepare(self, world: World) -> None:
        await super().prepare(world)
        await world.ensure(service(ports=[port(80), port(81, node_port=30081)]), self.machines[:1])
        local: dict[str, Any] = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}
        self.service = service(ports=[port(80, node_port=30099), port(443)], **local)


class Get(Ensure):
    async def prepare(self, world: World) -> None:
        await super().prepare(world)
        await world.ensure(self.service, self.machines)

    async def run(self, world: World) -> Any:
        return await world.ask(world.load_balancers.get, self.service)


class Owned(Get):
    async def run(self, world: World) -> Any:
        return await world.ask(lister(world).owned)


class UpdateHosts(Ensure):
    async def prepare(self, world: World) -> None:
        await super().prepare(world)
        await world.ensure(self.service, self.machines[:2])
        self.machines = self.machines[1:]

    async def run(self, world: World) -> Any:
        hosts = [node_of(machine) for machine in self.machines]
        return await world.ask(world.load_balancers.update_hosts, self.service, hosts)


class Delete(Get):
    async def prepare(self, world: World) -> None:
        self.pieces = set(await invoke(world.adapter.pieces))
        await super().prepare(world)

    async def run(self, world: World) -> Any:
        return await world.ask(world.load_balancers.delete, self.service)

    async def check(self, world: World) -> None:
        assert await world.seen(self.service) is None
        left = set(await invoke(world.adapter.pieces)) - self.pieces
        assert not left, "the balancer is gone and these are left"


class CreateRoute(Operation):
    async def prepare(self, world: World) -> None:
        (self.machine,) = await world.machines(1)
        self.node: Node = node_of(self.machine)

    async def run(self, world: World) -> Any:
        return await world.ask(world.routes.create, self.node, CIDR)

    async def check(self, world: World) -> None:
        (route,) = await world.ask(world.routes.list, [self.node])
        assert (route.cidr, route.node) == (CIDR, self.node.name)
        (there,) = await invoke(world.adapter.routes)
        assert (there.cidr, there.provider_id) == (CIDR, self.machine.provider_id)


class ListRoutes(CreateRoute):
    async def prepare(self, world: World) -> None:
        await super().prepare(world)
        await world.finish(world.routes.create, self.node, CIDR)

    async def run(self, world: World) -> Any:
        return await world.ask(world.routes.list, [self.node])


class DeleteRoute(ListRoutes):
    async def prepare(self, world: World) -> None:
        await super().prepare(world)
        (self.route,) = await world.ask(world.routes.list, [self.node])

    async def run(self, world: World) -> Any:
        route: Route = self.route
        return await world.ask(world.routes.delete, route)

    async def check(self, world: World) -> None:
        assert not await world.ask(world.routes.list, [self.node])
        assert not await invoke(world.adapter.routes)


READS = (Describe, DescribeVolumes, Get, Owned, ListRoutes)
WRITES = (Ensure, Change, UpdateHosts, Delete, CreateRoute, DeleteRoute)


async def read_broken_everywhere(world: World, operation: Operation) -> Any:
    """Its result after it was broken at each of its calls in turn, and raised every time."""
    for number in count(1):
        world.gate.break_call(number, Break.FAILED)
        outcome = await operation.outcome(world)
        if not world.gate.mend():
            break
        assert isinstance(outcome, CloudError), f"call {number} failed and it told a part"
    return outcome


def lister(world: World) -> ListsOwned:
    """The part that lists balancers by their mark."""
    part = world.load_balancers
    if not isinstance(part, ListsOwned):
        raise NotShown("the provider does not list the balancers it owns")
    return part
