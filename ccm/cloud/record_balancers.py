"""Load balancers of a cloud where each is one record: find, compare, one write, wait.

Not for clouds whose load balancer is a tree of parts, such as listeners and pools.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar, final

from ccm.cloud.gate import invoke, verify_missing
from ccm.cloud.interface import Instances, LooksUp
from ccm.cloud.lookup import verify_count
from ccm.cloud.newest import Newest
from ccm.cloud.shared_read import SharedLock, SharedRead
from ccm.decide.deletion import PLAUSIBLE_LOSS
from ccm.errors import (
    CloudError,
    Conflict,
    HasWarnings,
    LeftOut,
    NoRoom,
    NotFound,
    Refused,
    RetryAfter,
    warnings_as_notes,
)
from ccm.model.cloud import Answer, Balancer, Gone, OwnedBalancer, Unknown
from ccm.model.objects import Json, Node, text
from ccm.model.records import differences
from ccm.model.service import Feature, Service, asking_for_nothing

R = TypeVar("R", bound=HasWarnings)
T = TypeVar("T")

ABSENT_TRUSTED = 60.0  # seconds in which a node without a machine is left out
ABSENT_AWAITED = 900.0  # seconds in which it is expected back
LEFT_OUT = "nodes without a machine, by what the cloud reports, are left out"
TURN_ATTEMPTS = 5  # writes of one Service while machines end, before it is another one's turn
TURN_WAIT = 60.0  # seconds
ENDING = 10.0  # seconds since a machine was first found to have ended in which others may as well
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


class _RefusedWrite(Exception):
    """The cloud does not take a write; its backends may be why."""

    def __init__(self, refusal: Refused) -> None:
        self.refusal = refusal


class PresentNodes:
    """Performs work for nodes without those whose machine ended, once the cloud refuses a write."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances
        self._absent = dict[str, tuple[float, float]]()
        """By provider IDs without a machine: since when, and until when it is left out."""
        self._known = Newest[int, None]()
        """Hashes of those that are there or cannot be asked about: kubelets may write long ones."""
        self._turn, self._asking = SharedLock(), SharedLock()
        self._ended_at = float("-inf")

    @property
    def is_in_turn(self) -> bool:
        """Whether machines end, so that work is performed one by one.

        That some are still in their turn is no reason: with changes all the time some always are.
        """
        return self._turn.is_held and time.monotonic() - self._ended_at < ENDING

    async def write(self, write: Awaitable[T]) -> T:
        """One write inside of what is performed, whose refusal the nodes may be the reason for."""
        try:
            return await write
        except (Conflict, NoRoom, NotFound):
            raise
        except Refused as refusal:
            raise _RefusedWrite(refusal) from refusal

    async def ensure(
        self, perform: Callable[[Sequence[Node]], Awaitable[Balancer]], nodes: Sequence[Node]
    ) -> Balancer:
        """As `perform`; `lacking` while a node that is left out may come back."""
        balancer = await self.perform(perform, nodes)
        return replace(balancer, lacking=LEFT_OUT) if self._retry_after(nodes) else balancer

    async def update(
        self, perform: Callable[[Sequence[Node]], Awaitable[None]], nodes: Sequence[Node]
    ) -> None:
        """As `perform`; `LeftOut` while a node that is left out may come back."""
        await self.perform(perform, nodes)
        if seconds := self._retry_after(nodes):
            raise LeftOut(LEFT_OUT, seconds)

    def _retry_after(self, nodes: Sequence[Node]) -> float:
        """Seconds until those left out are looked for again, as the cloud may be wrong; 0 for none.

        Ever more seldom, and in the end never: a kubelet may name a machine that never was.
        """
        now, absent = time.monotonic(), (self._absent.get(node.provider_id) for node in nodes)
        left_out = [since for since, until in filter(None, absent) if until >= now]
        youngest = min((now - since for since in left_out), default=ABSENT_AWAITED)
        return max(ABSENT_TRUSTED, youngest) + 1.0 if youngest < ABSENT_AWAITED else 0.0

    async def perform(
        self, perform: Callable[[Sequence[Node]], Awaitable[T]], nodes: Sequence[Node]
    ) -> T:
        """Perform it, and again without the nodes whose machine ended when that is refused.

        While machines end, one Service at a time: of many that wait for their grants, each would
        find that another machine has ended since it last asked.
        """
        await self._ask_again(nodes)
        if not self.is_in_turn:
            with suppress(_RefusedWrite):
                return await self._attempt(perform, nodes)
        try:
            async with asyncio.timeout(TURN_WAIT) as wait, self._turn.held():
                wait.reschedule(None)
                await self._has_absent(nodes)
                for _ in range(TURN_ATTEMPTS):
                    with suppress(_RefusedWrite):
                        return await self._attempt(perform, nodes)
        except TimeoutError:
            if not wait.expired():
                raise
        raise RetryAfter("machines of its nodes end all the time: tried again", 0.0)

    async def _attempt(
        self, perform: Callable[[Sequence[Node]], Awaitable[T]], nodes: Sequence[Node]
    ) -> T:
        """Raises `_RefusedWrite` where a machine has ended, so that it is worth another one."""
        sent = self._present(nodes)
        try:
            return await perform(sent)
        except _RefusedWrite as refused:
            if await self._has_absent(sent):
                raise
            raise refused.refusal from None

    async def _ask_again(self, nodes: Sequence[Node]) -> None:
        """Whether those left out are back, by the cloud's answer, and new ones there while some are
        left out: each write that is refused makes others wait, and a kubelet may name others again.
        """
        async with self._asking.held():
            due = [node for node in self._present(nodes) if self._is_due(node)]
            try:
                await self._ask(due, len(nodes), has_proof=False)
            except CloudError:  # so that they are looked for as long as it fails
                now = time.monotonic()
                self._remember(due)
                for key in {item.provider_id for item in due} & self._absent.keys():
                    since = max(self._absent[key][0], now - ABSENT_AWAITED / 2)
                    self._absent[key] = since, now + ABSENT_TRUSTED

    def _is_due(self, node: Node) -> bool:
        key = node.provider_id
        return key in self._absent or bool(self._absent and key and hash(key) not in self._known)

    def _remember(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self._known[hash(node.provider_id)] = None

    def _present(self, nodes: Sequence[Node]) -> Sequence[Node]:
        now = time.monotonic()
        return [node for node in nodes if self._absent.get(node.provider_id, (0.0, 0.0))[1] < now]

    async def _has_absent(self, nodes: Sequence[Node]) -> bool:
        """Whether some of these nodes have no machine any more, by what the cloud says now."""
        asked = [node for node in self._present(nodes) if node.provider_id]
        if await self._ask(asked, len(asked), has_proof=True):
            self._ended_at = time.monotonic()
        return len(self._present(nodes)) < len(nodes)

    async def _ask(self, nodes: Sequence[Node], total: int, *, has_proof: bool) -> Sequence[Node]:
        """Leave out those without a machine; while some are, by no proof, which takes a call each.

        It raises where these are most of `total` and their kubelets are alive: all would leave all
        load balancers by one wrong answer. A few kubelets may name machines that never were.
        """
        part = self._instances
        ask = part.describe if has_proof or not isinstance(part, LooksUp) else part.look_up
        answers: Mapping[str, Answer] = await invoke(ask, nodes) if nodes else {}
        lost = [node for node in nodes if _is_absent(answers.get(node.name))]
        if (ready := sum(node.is_ready for node in lost)) > max(PLAUSIBLE_LOSS, total / 2):
            raise CloudError(f"the cloud reports {ready} machines of Ready nodes gone: not trusted")
        self._note(nodes, lost)
        return lost

    def _note(self, asked: Sequence[Node], lost: Sequence[Node]) -> None:
        """Leave out the `lost` ones of `asked`; forget those that no one asks about any more."""
        now = time.monotonic()
        old = now - ABSENT_AWAITED
        left = {key: it for key, it in self._absent.items() if it[1] > old}
        since = {item.provider_id: left.pop(item.provider_id, (now, now))[0] for item in asked}
        ids = {item.provider_id for item in lost}
        self._absent = left | {key: (since[key], now + ABSENT_TRUSTED) for key in ids}
        self._remember(item for item in asked if item.provider_id not in ids)
        for key in ids:
            self._known.pop(hash(key), None)


def _is_absent(answer: Answer | None) -> bool:
    return isinstance(answer, Gone) or (isinstance(answer, Unknown) and answer.is_nowhere)


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
