"""A provider in its cloud: what every test of the kit starts from."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from ccm.cloud.gate import invoke
from ccm.cloud.interface import (
    CloudProvider,
    Instances,
    LoadBalancers,
    ProviderContext,
    Routes,
    Volumes,
)
from ccm.cloud.registry import load_provider
from ccm.cloud.testkit.adapter import (
    CLUSTER,
    Adapter,
    FaultKind,
    Machine,
    NotShown,
    SeenBalancer,
)
from ccm.cloud.testkit.gate import Call, KitGate
from ccm.cloud.testkit.objects import node_of
from ccm.errors import RetryAfter
from ccm.model.cloud import Answer, Unknown
from ccm.model.node import Node
from ccm.model.service import Service, admits_everybody

T = TypeVar("T")


class World:
    """One provider object, its gate, and the adapter's way around both."""

    def __init__(self, provider_name: str, adapter: Adapter) -> None:
        self.provider_name, self.adapter = provider_name, adapter
        self.provider: CloudProvider
        self.gate: KitGate
        self.config = b""
        self._started: list[CloudProvider] = []

    # Life

    async def reset(self) -> None:
        """An empty cloud, and the provider started in it."""
        self.config = await invoke(self.adapter.reset)
        await self.restart()

    async def restart(self) -> None:
        """A new process of the provider: it knows nothing of what the one before did."""
        await self.close()
        self.gate = KitGate(self.adapter.call_timeout)
        self.provider = load_provider(self.provider_name)
        self._started.append(self.provider)
        await self.provider.initialize(self.context(self.config))

    async def close(self) -> None:
        while self._started:
            await self._started.pop().close()

    def context(self, config: bytes) -> ProviderContext:
        return ProviderContext(self.gate, config, "cloud.conf", CLUSTER, "kit")

    # The provider

    @property
    def instances(self) -> Instances:
        return _there(self.provider.instances, "instances")

    @property
    def load_balancers(self) -> LoadBalancers:
        return _there(self.provider.load_balancers, "load balancers")

    @property
    def routes(self) -> Routes:
        return _there(self.provider.routes, "routes")

    @property
    def volumes(self) -> Volumes:
        return _there(self.provider.volumes, "volumes")

    async def ask(self, method: Callable[..., T | Awaitable[T]], *args: Any) -> T:
        """What a method of the provider returns or raises; it has to end in time."""
        async with asyncio.timeout(self.adapter.patience):
            return await invoke(method, *args)

    async def finish(self, method: Callable[..., T | Awaitable[T]], *args: Any) -> T:
        """The same as a controller does it: come back as long as the cloud is at work."""
        async with asyncio.timeout(self.adapter.patience):
            while True:
                try:
                    return await invoke(method, *args)
                except RetryAfter as wait:
                    await asyncio.sleep(wait.seconds)

    async def describe(self, nodes: Sequence[Node]) -> dict[str, Answer]:
        """An answer for every Node, of the right kind and about no other."""
        answers = await self.ask(self.instances.describe, nodes)
        assert answers.keys() <= {node.name for node in nodes}, "answers about others than asked"
        wrong = [answer for answer in answers.values() if not isinstance(answer, Answer)]
        assert not wrong, "an answer is an Instance, Gone or Unknown"
        return {node.name: answers.get(node.name, Unknown("left out")) for node in nodes}

    async def describe_one(self, node: Node) -> Answer:
        return (await self.describe([node]))[node.name]

    async def ensure(self, service: Service, machines: Iterable[Machine]) -> None:
        """The balancer of a Service, ready, and in the cloud what the Service asks for."""
        machines = list(machines)
        hosts = [node_of(machine) for machine in machines]
        await self.finish(self.load_balancers.ensure, service, hosts)
        await self.check_balancer(service, machines)

    # The cloud

    async def machines(self, count: int) -> Sequence[Machine]:
        """New machines, all of them running."""
        if count > self.adapter.most_machines:
            most = self.adapter.most_machines
            raise NotShown(f"it takes {count} machines and the adapter may have {most}")
        names = [f"kit-{number}" for number in range(count)]
        return await invoke(self.adapter.create_machines, names)

    @property
    def more_than_a_page(self) -> int:
        """How many routes or balancers make a list of two pages."""
        if not self.adapter.page_size:
            raise NotShown("lists come whole from this cloud")
        return self.adapter.page_size + 1

    async def seen(self, service: Service) -> SeenBalancer | None:
        """The balancer of the Service's name as it is in the cloud."""
        name = self.load_balancers.name_for(service)
        found = [one for one in await invoke(self.adapter.balancers) if one.name == name]
        assert len(found) <= 1, f"there are {len(found)} balancers named {name}"
        return found[0] if found else None

    async def check_balancer(self, service: Service, machines: Iterable[Machine]) -> None:
        """In the cloud the balancer is what the Service asks for, with these hosts."""
        ranges = service.source_ranges()
        wanted = SeenBalancer(
            name=self.load_balancers.name_for(service),
            listeners=frozenset(
                (port["protocol"], port["port"], port["nodePort"]) for port in service.ports
            ),
            hosts=frozenset(machine.provider_id for machine in machines),
            source_ranges=frozenset(() if admits_everybody(ranges) else map(str, ranges)),
            health_check=service.health_check,
            has_affinity=service.spec["sessionAffinity"] == "ClientIP",
            families=frozenset(service.spec["ipFamilies"]),
        )
        assert await self.seen(service) == wanted

    @asynccontextmanager
    async def fault(self, kind: FaultKind) -> AsyncIterator[None]:
        """Every call of the provider fails inside."""
        await invoke(self.adapter.inject, kind)
        try:
            yield
        finally:
            await invoke(self.adapter.heal)

    @asynccontextmanager
    async def unchanged(self) -> AsyncIterator[None]:
        """What is done inside changes nothing in the cloud."""
        before = await invoke(self.adapter.snapshot)
        yield
        assert await invoke(self.adapter.snapshot) == before, "the cloud was changed"

    @asynccontextmanager
    async def no_write(self) -> AsyncIterator[None]:
        """What is done inside changes nothing, and does not even try to."""
        start = len(self.gate.calls)
        async with self.unchanged():
            yield
        assert self.writes_since(start) == [], "these calls are writes"

    def writes_since(self, start: int) -> list[Call]:
        """Calls that may change the cloud, from the `start`-th on."""
        is_write = self.adapter.is_write
        return [call for call in self.gate.calls[start:] if is_write(call.operation, call.budget)]


def _there(part: T | None, name: str) -> T:
    if part is None:
        raise NotShown(f"the provider has no {name}")
    return part
