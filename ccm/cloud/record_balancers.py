"""Load balancers of a cloud where each is one record: find, compare, one write, wait.

Not for clouds whose load balancer is a tree of parts, such as listeners and pools.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar, final

from ccm.cloud.gate import verify_missing, warnings_as_notes
from ccm.cloud.interface import Instances
from ccm.cloud.lookup import verify_count
from ccm.cloud.present_nodes import PresentNodes
from ccm.cloud.shared_read import SharedRead
from ccm.errors import CloudError, Conflict, HasWarnings, NotFound, Refused, RetryAfter
from ccm.model.cloud import Balancer, OwnedBalancer
from ccm.model.objects import Json, Node, text
from ccm.model.records import differences
from ccm.model.service import Feature, Service, asking_for_nothing

R = TypeVar("R", bound=HasWarnings)

MOST_BALANCERS = 50_000  # of an account; others may make any number, and each takes 4 us a Service
RACE_RETRY = 1.0  # seconds after which to look again at what someone else changed


@dataclass(frozen=True, slots=True)
class Desired:
    """What one record of a Service has to be; `record` is the one that is there, if any.

    `part` says which one it is, where a Service has several: an IP family, say. `lacking` is why
    some of its backends are missing, as in `Balancer`.
    """

    record: Json | None
    content: Json
    part: str = ""
    lacking: str = ""


class RecordBalancers(ABC, Generic[R]):
    """The `LoadBalancers` of a provider; `R` is what a Service asks for, with its warnings.

    The provider says how a record is read, whose it is, what it has to be, and how it is written.
    What is decided and in which order is said here, once.
    """

    supported_features: frozenset[Feature] = frozenset()
    privileged_annotations: frozenset[str] = frozenset()

    def __init__(self, instances: Instances) -> None:
        self._present_nodes, self._creations = PresentNodes(instances), 0
        self.shared_list = SharedRead(self._read_some)

    # The interface

    def name_for(self, service: Service) -> str:
        return service.default_balancer_name

    @final
    async def get(self, service: Service) -> Balancer | None:
        own = self.own(service, await self.read(service))
        if not own:
            return None
        try:
            request = await self.request(service, own)
        except Refused:
            request = await self.request(asking_for_nothing(service), own)
        return self.balancer(request, own)

    @final
    async def ensure(self, service: Service, nodes: Sequence[Node]) -> Balancer:
        self.check_served(service)
        self._creations += 1
        try:
            return await self._present_nodes.ensure(partial(self._ensure_all, service), nodes)
        finally:
            self._creations -= 1

    @final
    async def update_nodes(self, service: Service, nodes: Sequence[Node]) -> None:
        self.check_served(service)
        await self._present_nodes.update(partial(self._update_all, service), nodes)

    @final
    async def delete(self, service: Service) -> None:
        self.check_served(service)
        for record in await self._find(service, is_deleted=True):
            await self._remove(record)

    @final
    async def owned(self) -> Sequence[OwnedBalancer]:
        records = await self.shared_list()
        return list(dict.fromkeys(item for record in records if (item := self.owner_of(record))))

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
    async def desired_backends(self, record: Json, nodes: Sequence[Node]) -> Desired:
        """The record with the fields that say what is behind it, with these nodes."""

    @abstractmethod
    def check_ready(self, record: Json) -> None:
        """Raise `RetryAfter` while the cloud is at work on it, `CloudError` when it failed."""

    @abstractmethod
    async def create(self, request: R, desired: Desired) -> Json | None:
        """The new record; None if it is not needed. `Conflict` when its name is taken."""

    @abstractmethod
    async def update(self, record: Json, changes: Json) -> Json:
        """The record with these fields changed and all else as it was; only `change` calls it."""

    @abstractmethod
    async def remove(self, record: Json) -> None:
        """Delete it; `RetryAfter` while it is still there, `NotFound` if it was not."""

    @abstractmethod
    def balancer(self, request: R, records: Sequence[Json]) -> Balancer:
        """What is reported of the Service's records."""

    def id_of(self, record: Json) -> str:
        """What no two records share."""
        return text(record.get("id"))

    async def look(self, record_id: str) -> Json | None:
        """The record, read by itself; None where it is not there, or `read` asks for it alone."""
        return None

    def marks_of(self, record: Json) -> object:
        """What says whose it is; a list that has another one's is not trusted."""
        return self.owner_of(record)

    def is_doubted(self, record: Json) -> bool:
        """Whether a list may have it without a part, or as it was before, so that `look` counts."""
        return False

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

    async def compare(self, desired: Json, record: Json) -> Json:
        """`differences`, where that takes a while for a record of very many parts."""
        return self.differences(desired, record)

    async def finish(self, request: R, record: Json) -> Json:
        """What is to be done with a record that is ready, and the record after that."""
        return record

    # What is decided

    async def _read_some(self) -> Sequence[Json]:
        """All records; each Service that shares the list goes through it in the same turn."""
        records = await self.read_all()
        verify_count("the load balancers", len(records), MOST_BALANCERS)
        return records

    async def _ensure_all(self, service: Service, nodes: Sequence[Node]) -> Balancer:
        own = await self._find(service)
        request = await self.request(service, own)
        if not own:
            verify_missing()
        with warnings_as_notes(request):
            kept, wanted = list[Json](), await self.desired(request, nodes, own)
            for desired in wanted:
                if record := await self._ensure(request, desired):
                    self._verify_own(service, record)
                    self.check_ready(record)
                    kept.append(await self.finish(request, record))
            for record in own:
                if not any(self.id_of(record) == self.id_of(item) for item in kept):
                    await self._remove(record)
        lacking = next((item.lacking for item in wanted if item.lacking), "")
        return replace(self.balancer(request, kept), lacking=lacking)

    def _verify_own(self, service: Service, record: Json) -> None:
        """Raise for another's: what stands before a cloud may mix up the answers to two writes."""
        if not self.own(service, [record]):
            name = record.get("name") or self.id_of(record)
            raise CloudError(f"an answer about {name}, which is not the Service's, is not trusted")

    async def _update_all(self, service: Service, nodes: Sequence[Node]) -> None:
        own = self.own(service, await self.read(service))
        if not own:
            raise Refused(f"Service {service.key} has no load balancer")
        if self._creations and self._present_nodes.is_in_turn:
            raise RetryAfter("new load balancers come first: machines end all the time", 1.0)
        lacking = ""
        for record in own:
            desired = await self.desired_backends(record, nodes)
            await self._update(record, desired.content)
            lacking = desired.lacking or lacking
        if lacking:
            raise CloudError(lacking)

    async def _find(self, service: Service, is_deleted: bool = False) -> Sequence[Json]:
        records = await self.read(service)
        if not (own := self.own(service, records)):
            self.check_free(service, records, is_deleted)
        return own

    async def _ensure(self, request: R, desired: Desired) -> Json | None:
        if desired.record is not None:
            return await self._update(desired.record, desired.content)
        try:
            return await self._present_nodes.write(self.create(request, desired))
        except Conflict as conflict:  # created meanwhile, or by a call whose answer was lost
            raise CloudError(f"{conflict}: it was created a moment ago") from conflict

    async def _update(self, record: Json, content: Json) -> Json:
        if not (changes := await self.compare(content, record)):
            return record
        self.check_ready(record)
        try:
            return await self._present_nodes.write(self.change(record, changes))
        except NotFound as gone:
            raise RetryAfter(str(gone), RACE_RETRY) from gone

    @final
    async def change(self, record: Json, changes: Json) -> Json:
        """As `update`, of the record as it is; `finish` may change it as well."""
        return await self.update(await self._verified(record), changes)

    async def _remove(self, record: Json) -> None:
        with suppress(NotFound):
            await self.remove(await self._verified(record))

    async def _verified(self, record: Json) -> Json:
        """What is changed or deleted is read by itself first: a list may have it as another's."""
        is_doubted, found = self.is_doubted(record), await self.look(self.id_of(record))
        if found and self.marks_of(found) != self.marks_of(record):
            raise CloudError(f"a list has {self.id_of(record)} with other marks: it is not changed")
        return found if found and is_doubted else record
