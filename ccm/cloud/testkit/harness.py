"""A provider in its cloud, and the objects it is asked about: what every test starts from."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from types import UnionType
from typing import Any, TypeVar, cast
from uuid import NAMESPACE_URL, uuid5

from ccm.cloud.gate import invoke
from ccm.cloud.interface import (
    CloudProvider,
    Instances,
    LoadBalancers,
    MarksMachines,
    ProviderContext,
    Routes,
    Volumes,
)
from ccm.cloud.registry import Factory
from ccm.cloud.testkit.adapter import (
    CLUSTER,
    Adapter,
    FaultKind,
    Machine,
    ObservedBalancer,
    Untestable,
)
from ccm.cloud.testkit.gate import GateCall, KitGate
from ccm.errors import LeftOut, RetryAfter
from ccm.model.cloud import Answer, Balancer, PlaceAnswer, Unknown
from ccm.model.objects import Json, KubernetesObject, Node
from ccm.model.service import Service, admits_everybody
from ccm.model.volume import PersistentVolume
from ccm.redaction import TEXT_LIMIT

T = TypeVar("T")

SILENCE = 0.3
"""Seconds after which the gate gives up a call that the adapter leaves without an answer."""
OVERLAP_DELAY = 0.002
"""Seconds before each call that let calls under way together overlap."""


class Harness:
    """One provider object, its gate, and the adapter's way around both."""

    def __init__(self, provider_name: str, factory: Factory, adapter: Adapter) -> None:
        self.provider_name, self._factory, self.adapter = provider_name, factory, adapter
        self.provider: CloudProvider
        self.gate: KitGate
        self.config = b""
        self._started: list[CloudProvider] = []

    # Life

    async def reset(self) -> None:
        """An empty cloud, and the provider started in it."""
        self.config = await invoke(self.adapter.reset)
        await self.restart()

    async def restart(self, restricts_annotations: bool = False) -> None:
        """A new process of the provider: it knows nothing of what the one before did."""
        await self.close()
        self.gate = KitGate(self.adapter.call_timeout)
        self.provider = self._factory()
        self._started.append(self.provider)
        context = replace(self.context(self.config), restricts_annotations=restricts_annotations)
        await self.provider.initialize(context)
        instances: object = self.provider.instances
        if isinstance(instances, MarksMachines):
            instances.require_marks(self.adapter.machine_marks)

    async def close(self) -> None:
        while self._started:
            await self._started.pop().close()

    def context(self, config: bytes) -> ProviderContext:
        return ProviderContext(self.gate, config, self.adapter.config_path, CLUSTER, "kit")

    # The provider

    @property
    def instances(self) -> Instances:
        return _require(self.provider.instances, "instances")

    @property
    def load_balancers(self) -> LoadBalancers:
        return _require(self.provider.load_balancers, "load balancers")

    @property
    def routes(self) -> Routes:
        return _require(self.provider.routes, "routes")

    @property
    def volumes(self) -> Volumes:
        return _require(self.provider.volumes, "volumes")

    @property
    def volume_sources(self) -> list[str]:
        """The CSI drivers and keys of `spec` whose volumes are this cloud's."""
        found = sorted(self.volumes.csi_drivers | self.volumes.legacy_sources)
        assert found, "which volumes are this cloud's?"
        return found

    async def call(self, method: Callable[..., T | Awaitable[T]], *args: Any) -> T:
        """What a method of the provider returns or raises; it has to end in time."""
        async with asyncio.timeout(self.adapter.operation_timeout):
            return _whole(await invoke(method, *args))

    async def until_done(self, method: Callable[..., T | Awaitable[T]], *args: Any) -> T:
        """The same as a controller does it: come back as long as the cloud is at work."""
        async with asyncio.timeout(self.adapter.operation_timeout):
            while True:
                try:
                    result = await invoke(method, *args)
                    if isinstance(result, Balancer) and result.lacking:
                        await self.until_done(self.load_balancers.update_nodes, *args)
                    return result
                except LeftOut:
                    return cast(T, None)
                except RetryAfter as wait:
                    await asyncio.sleep(wait.seconds)

    async def describe(self, nodes: Sequence[Node]) -> dict[str, Answer]:
        """An answer for every Node, of the right kind and about no other."""
        return _complete(nodes, await self.call(self.instances.describe, nodes), Answer)

    async def places(self, volumes: Sequence[PersistentVolume]) -> dict[str, PlaceAnswer]:
        """The same for volumes."""
        return _complete(volumes, await self.call(self.volumes.describe, volumes), PlaceAnswer)

    async def describe_one(self, node: Node) -> Answer:
        return (await self.describe([node]))[node.name]

    async def ensure(self, service: Service, machines: Iterable[Machine]) -> None:
        """Create the Service's balancer, wait for it, and check it in the cloud."""
        machines = list(machines)
        backends = [node_of(machine) for machine in machines]
        await self.until_done(self.load_balancers.ensure, service, backends)
        await self.check_balancer(service, machines)

    def check_texts(self, texts: Iterable[str]) -> None:
        """Each can be shown to anybody: it is one line, short, and without the credentials."""
        for text in texts:
            assert len(text) <= TEXT_LIMIT
            assert text.isprintable()
            assert not [secret for secret in self.adapter.secrets if secret in text]

    # The cloud

    async def machines(self, count: int) -> Sequence[Machine]:
        """New machines, all of them running."""
        if count > self.adapter.max_machines:
            most = self.adapter.max_machines
            raise Untestable(f"it takes {count} machines and the adapter may have {most}")
        names = [f"kit-{number}" for number in range(count)]
        return await invoke(self.adapter.create_machines, names)

    @property
    def more_than_a_page(self) -> int:
        """How many routes or balancers make a list of two pages."""
        if not self.adapter.page_size:
            raise Untestable("lists come whole from this cloud")
        return self.adapter.page_size + 1

    async def observed_balancer(self, service: Service) -> ObservedBalancer | None:
        """The balancer of the Service's name as it is in the cloud."""
        name = self.load_balancers.name_for(service)
        found = [item for item in await invoke(self.adapter.list_balancers) if item.name == name]
        assert len(found) <= 1, f"there are {len(found)} load balancers named {name}"
        return found[0] if found else None

    async def check_balancer(
        self, service: Service, machines: Iterable[Machine], *, is_shared: bool = False
    ) -> None:
        """In the cloud the balancer is what the Service asks for, with these backends.

        One that `is_shared` may have listeners of others as well.
        """
        ranges = service.source_ranges()
        wanted = ObservedBalancer(
            name=self.load_balancers.name_for(service),
            listeners=frozenset(
                (port["protocol"], port["port"], port["nodePort"]) for port in service.ports
            ),
            backends=frozenset(machine.provider_id for machine in machines),
            source_ranges=frozenset(() if admits_everybody(ranges) else map(str, ranges)),
            health_check=service.health_check if self.adapter.has_http_checks else None,
            has_affinity=service.spec["sessionAffinity"] == "ClientIP",
            families=frozenset(service.spec["ipFamilies"]),
        )
        seen = await self.observed_balancer(service)
        has_none = seen and not seen.backends and not any(port for _, _, port in seen.listeners)
        if has_none or not self.adapter.has_node_ports:
            wanted = replace(wanted, listeners=frozenset((p, n, 0) for p, n, _ in wanted.listeners))
        if seen and is_shared:
            seen = replace(seen, listeners=seen.listeners & wanted.listeners)
        assert seen == wanted

    @asynccontextmanager
    async def fault(self, kind: FaultKind) -> AsyncIterator[None]:
        """Every call of the provider fails inside."""
        if kind not in self.adapter.fault_kinds:
            raise Untestable(f"the adapter injects no fault {kind.value!r}")
        await invoke(self.adapter.inject_fault, kind)
        if kind is FaultKind.SILENT:  # there is nothing to wait for
            self.gate.timeout = min(self.gate.timeout, SILENCE)
        try:
            yield
        finally:
            self.gate.timeout = self.adapter.call_timeout
            await invoke(self.adapter.clear_fault)

    @asynccontextmanager
    async def no_change(self) -> AsyncIterator[None]:
        """What is done inside changes nothing in the cloud."""
        before = await invoke(self.adapter.snapshot)
        yield
        assert await invoke(self.adapter.snapshot) == before, "the cloud was changed"

    @asynccontextmanager
    async def no_write(self) -> AsyncIterator[None]:
        """What is done inside changes nothing, and does not even try to."""
        start = len(self.gate.calls)
        async with self.no_change():
            yield
        assert self.writes_since(start) == [], "these calls are writes"

    def writes_since(self, start: int) -> list[GateCall]:
        """Calls that may change the cloud, from the `start`-th on."""
        is_write = self.adapter.is_write
        return [call for call in self.gate.calls[start:] if is_write(call.operation, call.budget)]


def _whole(result: T) -> T:
    """What a provider returned; as a controller, the kit comes back where backends are missing."""
    if isinstance(result, Balancer) and result.lacking:
        raise RetryAfter(result.lacking, 0.0)
    return result


def _require(part: T | None, name: str) -> T:
    if part is None:
        raise Untestable(f"the provider has no {name}")
    return part


def _complete(
    asked: Sequence[KubernetesObject], answers: Mapping[str, T], kind: UnionType
) -> dict[str, T | Unknown]:
    names = [item.name for item in asked]
    assert answers.keys() <= set(names), "answers about others than asked"
    wrong = [answer for answer in answers.values() if not isinstance(answer, kind)]
    assert not wrong, f"an answer is {kind}"
    return {name: answers.get(name, Unknown("left out")) for name in names}


# Objects as a cluster would hold them.


def uid_of(name: str) -> str:
    """A UID that is always the same for one name."""
    return str(uuid5(NAMESPACE_URL, name))


def node(name: str, provider_id: str = "") -> Node:
    """A Node that nothing is known of but its name and, once initialized, its provider ID."""
    spec = {"providerID": provider_id} if provider_id else {}
    return Node({"metadata": {"name": name, "uid": uid_of(name)}, "spec": spec})


def node_of(machine: Machine) -> Node:
    """The initialized Node of a machine."""
    found = node(machine.node, machine.provider_id)
    found.raw["status"] = {"addresses": [asdict(address) for address in machine.addresses]}
    return found


def port(number: int, protocol: str = "TCP", node_port: int = 30080) -> Json:
    """One of `spec.ports` of a Service."""
    name = f"{protocol.lower()}-{number}"
    return {
        "name": name, "port": number, "protocol": protocol, "nodePort": node_port,
        "targetPort": number,
    }  # fmt: skip


def service(
    name: str = "web", annotations: Mapping[str, str] | None = None, **spec: Any
) -> Service:
    """A Service of type LoadBalancer; `spec` replaces fields of its spec."""
    meta = {"name": name, "namespace": "default", "uid": uid_of(name)}
    usual = {
        "type": "LoadBalancer",
        "ports": [port(80)],
        "clusterIP": "10.96.0.80",
        "externalTrafficPolicy": "Cluster",
        "sessionAffinity": "None",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
    }
    return Service(
        {
            "metadata": {**meta, "annotations": dict(annotations or {})},
            "spec": {**usual, **spec},
            "status": {"loadBalancer": {}},
        }
    )


def volume(name: str, spec: Json) -> PersistentVolume:
    """A PersistentVolume with this `spec`."""
    return PersistentVolume({"metadata": {"name": name, "uid": uid_of(name)}, "spec": spec})
