"""Load balancers of a cloud where each is one record: find, compare, one write, wait.

Not for clouds whose load balancer is a tree of parts, such as listeners and pools.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, final

from ccm.cloud.gate import invoke
from ccm.cloud.interface import Instances
from ccm.cloud.shared_read import SharedRead
from ccm.errors import (
    CloudError,
    Conflict,
    HasWarnings,
    NoRoom,
    NotFound,
    Refused,
    RetryAfter,
    warnings_as_notes,
)
from ccm.model.cloud import Balancer, Gone, OwnedBalancer
from ccm.model.objects import Json, Node, text
from ccm.model.records import differences
from ccm.model.service import Feature, Service

R = TypeVar("R", bound=HasWarnings)
T = TypeVar("T")

ABSENT_TRUSTED = 60.0  # seconds in which a node without a machine is left out
RACE_RETRY = 1.0  # seconds after which to look again at what someone else changed


@dataclass(frozen=True, slots=True)
class Desired:
    """What one record of a Service has to be; `record` is the one that is there, if any.

    `part` says which one it is, where a Service has several: an IP family, say.
    """

    record: Json | None
    content: Json
    part: str = ""


class RecordBalancers(ABC, Generic[R]):
    """The `LoadBalancers` of a provider; `R` is what a Service asks for, with its warnings.

    The provider says how a record is read, whose it is, what it has to be, and how it is written.
    What is decided and in which order is said here, once.
    """

    supported_features: frozenset[Feature] = frozenset()
    privileged_annotations: frozenset[str] = frozenset()

    def __init__(self, instances: Instances) -> None:
        self._instances = instances
        self._absent: dict[str, float] = {}  # provider IDs without a machine, until when
        self.shared_list = SharedRead(self.read_all)

    # The interface

    def name_for(self, service: Service) -> str:
        return service.default_balancer_name

    @final
    async def get(self, service: Service) -> Balancer | None:
        own = self.own(service, await self.read(service))
        return self.balancer(await self.request(service, own), own) if own else None

    @final
    async def ensure(self, service: Service, nodes: Sequence[Node]) -> Balancer:
        self.check_served(service)
        own = await self._find(service)
        request = await self.request(service, own)
        with warnings_as_notes(request):
            kept, nodes = list[Json](), self._present(nodes)
            for desired in await self.desired(request, nodes, own):
                if record := await self._ensure(request, desired, nodes):
                    self.check_ready(record)
                    kept.append(await self.finish(request, record))
            for record in own:
                if not any(self.id_of(record) == self.id_of(one) for one in kept):
                    await self._remove(record)
        return self.balancer(request, kept)

    @final
    async def update_nodes(self, service: Service, nodes: Sequence[Node]) -> None:
        self.check_served(service)
        nodes, own = self._present(nodes), self.own(service, await self.read(service))
        if not own:
            raise Refused(f"Service {service.key} has no load balancer")
        for record in own:
            await self._update(record, await self.desired_backends(record, nodes), nodes)

    @final
    async def delete(self, service: Service) -> None:
        self.check_served(service)
        for record in await self._find(service, is_deleted=True):
            await self._remove(record)

    @final
    async def owned(self) -> Sequence[OwnedBalancer]:
        records = await self.shared_list()
        return list(dict.fromkeys(one for record in records if (one := self.owner_of(record))))

    # What a provider says of its cloud

    @abstractmethod
    async def read_all(self) -> Sequence[Json]:
        """Every record of the account; raises rather than answer with a part."""

    async def read(self, service: Service) -> Sequence[Json]:
        """The records among which the Service's own are: all, unless the cloud finds by name."""
        return await self.shared_list()

    @abstractmethod
    def own(self, service: Service, records: Sequence[Json]) -> Sequence[Json]:
        """Those of `records` that are provably this Service's, by nothing that a tenant writes."""

    @abstractmethod
    def owner_of(self, record: Json) -> OwnedBalancer | None:
        """The Service that a record with this cluster's mark was created for."""

    @abstractmethod
    async def request(self, service: Service, own: Sequence[Json]) -> R:
        """What the Service asks for; raises `Refused` for what this cloud cannot do."""

    @abstractmethod
    async def desired(
        self, request: R, nodes: Sequence[Node], own: Sequence[Json]
    ) -> Sequence[Desired]:
        """What has to be there; `own` records that nothing is desired of are removed."""

    @abstractmethod
    async def desired_backends(self, record: Json, nodes: Sequence[Node]) -> Json:
        """The fields of a record that say what is behind it, with these nodes."""

    @abstractmethod
    def check_ready(self, record: Json) -> None:
        """Raise `RetryAfter` while the cloud is at work on it, `CloudError` when it failed."""

    @abstractmethod
    async def create(self, request: R, desired: Desired) -> Json | None:
        """The new record; None if it is not needed. `Conflict` when its name is taken."""

    @abstractmethod
    async def update(self, record: Json, changes: Json) -> Json:
        """The record with these fields changed and all else as it was."""

    @abstractmethod
    async def remove(self, record: Json) -> None:
        """Delete it; `RetryAfter` while it is still there, `NotFound` if it was not."""

    @abstractmethod
    def balancer(self, request: R, records: Sequence[Json]) -> Balancer:
        """What is reported of the Service's records."""

    def id_of(self, record: Json) -> str:
        """What no two records share."""
        return text(record.get("id"))

    def check_served(self, service: Service) -> None:
        """Raise `ImplementedElsewhere` for a Service that another controller looks after."""

    def check_free(self, service: Service, records: Sequence[Json], is_deleted: bool) -> None:
        """Raise `Refused` for another's record that stands in the way of the Service's own."""
        for record in records:
            if record.get("name") == self.name_for(service):
                raise Refused(
                    f"load balancer {record['name']} is not marked as this cluster's for Service "
                    f"{service.key}: it is not changed; rename it or mark it by hand"
                )

    def differences(self, desired: Json, record: Json) -> Json:
        """The fields of `desired` to write; raises `Refused` for what cannot be changed."""
        return differences(desired, record)

    async def finish(self, request: R, record: Json) -> Json:
        """What is to be done with a record that is ready, and the record after that."""
        return record

    # What is decided

    async def _find(self, service: Service, is_deleted: bool = False) -> Sequence[Json]:
        records = await self.read(service)
        own = self.own(service, records)
        if not own:
            self.check_free(service, records, is_deleted)
        return own

    async def _ensure(self, request: R, desired: Desired, nodes: Sequence[Node]) -> Json | None:
        if desired.record is not None:
            return await self._update(desired.record, desired.content, nodes)
        try:
            return await self._write(nodes, self.create(request, desired))
        except Conflict as conflict:  # created meanwhile, or by a call whose answer was lost
            raise CloudError(f"{conflict}: it was created a moment ago") from conflict

    async def _update(self, record: Json, content: Json, nodes: Sequence[Node]) -> Json:
        if not (changes := self.differences(content, record)):
            return record
        self.check_ready(record)
        try:
            return await self._write(nodes, self.update(record, changes))
        except NotFound as gone:
            raise RetryAfter(str(gone), RACE_RETRY) from gone

    async def _remove(self, record: Json) -> None:
        try:
            await self.remove(record)
        except NotFound:
            return

    def _present(self, nodes: Sequence[Node]) -> Sequence[Node]:
        now = time.monotonic()
        return [node for node in nodes if self._absent.get(node.provider_id, 0.0) < now]

    async def _write(self, nodes: Sequence[Node], write: Awaitable[T]) -> T:
        """Raises `RetryAfter` when some of the nodes have no machine: the next call omits them.

        Not here and now: the nodes may have changed while this call waited for its grants.
        """
        try:
            return await write
        except (Conflict, NoRoom, NotFound):
            raise
        except Refused as refusal:
            initialized = [node for node in nodes if node.provider_id]
            answers = await invoke(self._instances.describe, initialized) if initialized else {}
            absent = {
                node.provider_id for node in initialized if isinstance(answers.get(node.name), Gone)
            }
            if not absent:
                raise
            now = time.monotonic()
            trusted = {one: until for one, until in self._absent.items() if until > now}
            self._absent = trusted | dict.fromkeys(absent, now + ABSENT_TRUSTED)
            message = f"{len(absent)} nodes have no machine any more"
            raise RetryAfter(message, 0.0) from refusal
