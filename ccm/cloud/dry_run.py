"""A cloud that answers and takes nothing: what a provider's parts become for a dry run."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from ccm.cloud.gate import WorkerGate, invoke
from ccm.cloud.interface import ChecksServices, CloudProvider, LoadBalancers, Routes
from ccm.errors import CloudError
from ccm.model.cloud import Balancer, Ingress, Route
from ccm.model.objects import Json, Node
from ccm.model.service import Service

T = TypeVar("T")

UNASSIGNED = "to-be-assigned.invalid"
"""Stands for the address of a balancer that is not there yet."""

Changes = dict[str, Json]
"""The last write to each object that the cloud would have received; the keys mean nothing.

`about` says in words what changes, `does` is create, update or delete, and `call` is the provider's
first call that would have written.
"""


class WouldWrite(CloudError):
    """The provider was about to change something in the cloud, and was stopped.

    Its notes, if the provider adds any, are the balancer's warnings.
    """


class ReadingGate:
    """A gate that lets reads through and stops the first write."""

    def __init__(self, gate: WorkerGate) -> None:
        self._gate = gate

    async def call(
        self, operation: str, budget: str, function: Callable[[], Awaitable[T]], *, is_write: bool
    ) -> T:
        _stop_write(operation, is_write)
        return await self._gate.call(operation, budget, function, is_write=False)

    def call_blocking(
        self, operation: str, budget: str, function: Callable[[], T], *, is_write: bool
    ) -> T:
        _stop_write(operation, is_write)
        return self._gate.call_blocking(operation, budget, function, is_write=False)

    def report_remaining(self, budget: str, calls: int, seconds: float) -> None:
        self._gate.report_remaining(budget, calls, seconds)


def _stop_write(operation: str, is_write: bool) -> None:
    if is_write:
        raise WouldWrite(operation)


def record_changes(provider: CloudProvider, changes: Changes) -> None:
    """Let `provider`, initialized with a `ReadingGate`, note in `changes` what it would write."""
    if provider.load_balancers:
        provider.load_balancers = RecordedBalancers(provider.load_balancers, changes)
    if provider.routes:
        provider.routes = RecordedRoutes(provider.routes, changes)


class RecordedBalancers:
    """The balancers that are there, and beside them those that would be."""

    def __init__(self, real: LoadBalancers, changes: Changes) -> None:
        self._real, self._changes = real, changes
        self.supported_features = real.supported_features
        self.privileged_annotations = real.privileged_annotations
        self.name_for = real.name_for

    def check_service(self, service: Service) -> None:
        if isinstance(self._real, ChecksServices):
            self._real.check_service(service)

    async def get(self, service: Service) -> Balancer | None:
        planned = self._changes.get(service.uid)
        if planned and planned["does"] != "update":
            return self._new(service) if planned["does"] == "create" else None
        return await invoke(self._real.get, service)

    async def ensure(self, service: Service, nodes: Sequence[Node]) -> Balancer:
        try:
            current = await invoke(self._real.ensure, service, nodes)
        except WouldWrite as write:
            found = await invoke(self._real.get, service)
            self._record(service, "update" if found else "create", str(write), nodes)
            warnings = tuple(getattr(write, "__notes__", ()))
            return replace(found or self._new(service), warnings=warnings)
        self._changes.pop(service.uid, None)
        return current

    async def update_nodes(self, service: Service, nodes: Sequence[Node]) -> None:
        planned = self._changes.get(service.uid)
        if planned and planned["does"] == "create":
            self._record(service, "create", planned["call"], nodes)
            return
        try:
            await invoke(self._real.update_nodes, service, nodes)
            self._changes.pop(service.uid, None)
        except WouldWrite as write:
            self._record(service, "update", str(write), nodes)

    async def delete(self, service: Service) -> None:
        try:
            await invoke(self._real.delete, service)
        except WouldWrite as write:
            self._record(service, "delete", str(write), ())

    def _new(self, service: Service) -> Balancer:
        return Balancer(self.name_for(service), (Ingress(hostname=UNASSIGNED),))

    def _record(self, service: Service, does: str, call: str, nodes: Sequence[Node]) -> None:
        about = f"load balancer {self.name_for(service)} of {service.key}"
        change: Json = {"about": about, "does": does, "call": call}
        if does != "delete":
            ports = (f"{port.get('protocol', 'TCP')} {port.get('port')}" for port in service.ports)
            change |= {"ports": list(ports), "nodes": sorted(node.name for node in nodes)}
        self._changes[service.uid] = change


class RecordedRoutes:
    """The routes that are there, without those that would go and with those that would come."""

    def __init__(self, real: Routes, changes: Changes) -> None:
        self._real, self._changes = real, changes
        self._deleted: set[str] = set()
        self._created: dict[str, Route] = {}  # by the ID that stands for the coming one

    async def list(self, nodes: Sequence[Node]) -> Sequence[Route]:
        current = await invoke(self._real.list, nodes)
        left = [route for route in current if route.id not in self._deleted]
        names = {node.name for node in nodes}
        coming = self._created.values()
        return [*left, *(r if r.node in names else replace(r, node="") for r in coming)]

    async def create(self, node: Node, cidr: str) -> None:
        try:
            await invoke(self._real.create, node, cidr)
        except WouldWrite as write:
            route = Route(cidr, node.name, id=f"to-be-created-{cidr}")
            self._created[route.id] = route
            self._record("create", str(write), route)

    async def delete(self, route: Route) -> None:
        if self._created.pop(route.id, None):
            del self._changes[route.id]
            return
        try:
            await invoke(self._real.delete, route)
        except WouldWrite as write:
            self._deleted.add(route.id)
            self._record("delete", str(write), route)

    def _record(self, does: str, call: str, route: Route) -> None:
        about = f"route {route.cidr} to {route.node or 'no node'}"
        self._changes[route.id] = {"about": about, "does": does, "call": call}
