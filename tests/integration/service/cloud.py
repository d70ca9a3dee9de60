"""A cloud of balancers in memory: it holds them, counts writes, and can fail or dawdle."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ccm.cloud.gate import _priority, _writes, verify_missing
from ccm.decide.budget import Priority
from ccm.errors import NoRoom, Refused
from ccm.model.cloud import Balancer, Ingress, IpMode
from ccm.model.objects import Json, Node
from ccm.model.service import SPEC_FIELDS, Feature, Service


@dataclass(frozen=True)
class Record:
    """A balancer as the cloud has it; `owner` is the UID in its mark."""

    owner: str
    ip: str
    asked: Json | None = None
    backends: frozenset[tuple[str, str]] = frozenset()


class Balancers:
    """The load balancer part of a provider. A creation takes three writes, a change one each."""

    def __init__(self) -> None:
        self.supported_features = frozenset(Feature)
        self.privileged_annotations = frozenset({"example.com/certificate"})
        self.records: dict[str, Record] = {}
        self.calls: list[tuple[Any, ...]] = []  # operation, Service, names of backends
        self.priorities: list[tuple[str, Priority]] = []
        self.writes = 0
        self.failures: defaultdict[str, list[Exception]] = defaultdict(list)
        self.holds: dict[str, asyncio.Event] = {}  # by Service: its calls wait for this
        self.before_write: Callable[[], None] = lambda: None
        self.check: Callable[[], None] = lambda: None  # as a gate does before a request leaves
        self.most = 1000
        self.ip_mode: IpMode | None = None
        self.warnings: tuple[str, ...] = ()
        self.lacking, self.is_shared = "", False
        self.is_contested = False  # a shared one, when that is read
        self.annotations: dict[str, str] = {}
        self.has_addresses = True
        self.refused = ""  # why Services are refused by what they ask for
        self.most_at_once = 0
        self._at_once = 0

    def named(self, operation: str) -> list[tuple[Any, ...]]:
        return [call for call in self.calls if call[0] == operation]

    def of(self, service: Service) -> Record | None:
        return self.records.get(self.name_for(service))

    def name_for(self, service: Service) -> str:
        return f"a{service.uid}"

    def check_service(self, service: Service) -> None:
        if self.refused:
            raise Refused(self.refused)

    async def get(self, service: Service) -> Balancer | None:
        await self._begin("get", service)
        record = self.of(service)
        if record is None or record.owner != service.uid:
            return None
        return replace(self._shown(service, record), is_contested=self.is_contested)

    async def ensure(self, service: Service, backends: Sequence[Node]) -> Balancer:
        await self._begin("ensure", service, backends)
        self.check_service(service)
        record = self.of(service)
        if record is None:
            verify_missing()
            if len(self.records) >= self.most:
                raise NoRoom(f"the account may have {self.most} load balancers")
            number = len(self.records) + 1
            record = self._set(service, Record(service.uid, f"192.0.2.{number}"))
        self._check(service, record)
        asked = {name: service.spec.get(name) for name in SPEC_FIELDS}
        if record.asked != asked:
            record = self._set(service, replace(record, asked=asked))
        self._set_backends(service, record, backends)
        return self._shown(service, record)

    async def update_nodes(self, service: Service, backends: Sequence[Node]) -> None:
        await self._begin("update", service, backends)
        record = self.of(service)
        if record is None:
            raise Refused("no balancer")
        self._check(service, record)
        self._set_backends(service, record, backends)

    async def delete(self, service: Service) -> None:
        await self._begin("delete", service)
        if record := self.of(service):
            self._check(service, record)
            self._write()
            del self.records[self.name_for(service)]

    async def _begin(self, operation: str, service: Service, backends: Sequence[Node] = ()) -> None:
        self.check()
        self.calls.append((operation, service.name, *(node.name for node in backends)))
        self.priorities.append((operation, _priority.get()))
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            if hold := self.holds.get(service.name):
                await hold.wait()
            else:
                await asyncio.sleep(0)
        finally:
            self._at_once -= 1
        if self.failures[operation]:
            raise self.failures[operation].pop(0)

    def _check(self, service: Service, record: Record) -> None:
        if record.owner != service.uid:
            raise Refused("it is not ours")

    def _set_backends(self, service: Service, record: Record, backends: Sequence[Node]) -> None:
        wanted = frozenset((node.name, node.provider_id) for node in backends)
        if record.backends != wanted:
            self._set(service, replace(record, backends=wanted))

    def _set(self, service: Service, record: Record) -> Record:
        self._write()
        self.records[self.name_for(service)] = record
        return record

    def _write(self) -> None:
        self.before_write()
        self.writes += 1
        _writes.get([]).append("UpdateLoadBalancer")

    def _shown(self, service: Service, record: Record) -> Balancer:
        ingress = (Ingress(record.ip, ip_mode=self.ip_mode),) if self.has_addresses else ()
        made = Balancer(self.name_for(service), ingress, self.warnings, self.annotations)
        return replace(made, lacking=self.lacking, is_shared=self.is_shared)
