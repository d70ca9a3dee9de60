"""A worker's copy of the objects it wants, own writes read back; and which Node has a machine."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import orjson

from ccm.background import Deadlines
from ccm.bus.frames import Objects
from ccm.decide.claims import ClaimFacts, facts_of, rightful_node
from ccm.model.cloud import Instance
from ccm.model.objects import (
    FieldPath,
    Json,
    KubernetesObject,
    Node,
    Projection,
    carried,
    resource_version,
)

log = logging.getLogger(__name__)

K = TypeVar("K", bound=KubernetesObject)

Name = tuple[str, str]  # kind, key
Versioned = tuple[int, bytes]  # version, 0 when it is not known; JSON text

FORMER_NODE_COUNTS = 300.0  # seconds for which a cloud may still name the machine of a former Node
DUPLICATE = "DuplicateProviderID"
"""The reason of the Event on a Node that gets nothing."""
OLDER, FIRST, BY_CLOUD = "is older", "had it first", "matches the cloud's record"
"""Why a Node has a machine."""


class Gap(Exception):
    """A frame is missing; only a new snapshot helps."""


@dataclass(frozen=True, slots=True)
class AppliedFrame:
    """What a frame did: the objects that changed, and whether a snapshot became complete."""

    changed: list[Name]
    completed: bool


@dataclass
class Store:
    """The newest known state of every wanted object, by kind and key.

    It is kept as JSON text, a quarter of what it takes as objects of Python, and read when someone
    asks for it: a caller that reads many objects again and again keeps the result.
    """

    projections: tuple[Projection, ...]
    _objects: dict[str, dict[str, Versioned]] = field(default_factory=dict)  # by kind and key
    _coming: dict[Name, Versioned] | None = None
    _epoch: int = 0
    _seq: int = 0
    _restores: int = 0
    _deadlines: Deadlines = field(default_factory=Deadlines)
    _echoes: dict[Name, asyncio.Event] = field(default_factory=dict)  # own writes yet to come back

    def get(self, kind: str, key: str) -> Json | None:
        """The object; it is the caller's own."""
        found = self._objects.get(kind, {}).get(key)
        return _read(found) if found else None

    def view(self, kind: type[K], key: str) -> K | None:
        """The object of this kind; None when there is none."""
        raw = self.get(kind.KIND, key)
        return kind(raw) if raw is not None else None

    def has(self, kind: str, key: str) -> bool:
        """Whether it is known; it is not read for that."""
        return key in self._objects.get(kind, {})

    def version(self, kind: str, key: str) -> int:
        """That of the object as it is here; 0 when it is not known."""
        known = self._objects.get(kind, {}).get(key)
        return known[0] if known else 0

    def count(self, kind: str) -> int:
        return len(self._objects.get(kind, {}))

    def keys(self, kind: str) -> list[str]:
        return list(self._objects.get(kind, {}))

    def names(self) -> list[Name]:
        return [(kind, key) for kind, known in self._objects.items() for key in known]

    def apply(self, frame: Objects) -> AppliedFrame:
        """Take in a frame of objects; raises `Gap` when one before it is missing."""
        if frame.epoch != self._epoch:
            self._epoch, self._seq, self._coming = frame.epoch, 0, {}
        if frame.restores != self._restores:
            self._restores = frame.restores
            for known in self._objects.values():
                known.update((key, (0, text)) for key, (_, text) in list(known.items()))
        if frame.seq != self._seq + 1:
            raise Gap(f"frame {frame.seq} of epoch {frame.epoch} after {self._seq}")
        self._seq = frame.seq
        news = [
            ((kind, key), (version, text) if text else None)
            for (kind, key, version), text in zip(frame.entries, frame.values, strict=True)
        ]
        if self._coming is None:
            changed = [name for name, new in news if self._take(name, new)]
            return AppliedFrame(changed, completed=False)
        for name, new in news:
            if new:
                self._coming[name] = new
            else:
                self._coming.pop(name, None)
        return self._complete() if frame.complete else AppliedFrame([], completed=False)

    def wrote(self, kind: str, key: str, answer: Json) -> None:
        """Remember what a write of ours answered; older entries of a frame are ignored."""
        known = self._objects.get(kind, {}).get(key)
        if known is None:
            return
        new = resource_version(answer), carried(kind, answer, self._paths(kind))
        if new[0] > known[0] and new[1] != known[1]:
            self._echoes[(kind, key)] = asyncio.Event()
        self._put((kind, key), new)

    async def echoed(self, kind: str, key: str, seconds: float) -> None:
        """Wait until a frame has the object as we wrote it last, but not for too long."""
        if echo := self._echoes.get((kind, key)):
            with suppress(TimeoutError), self._deadlines.within(seconds):
                await echo.wait()

    def _complete(self) -> AppliedFrame:
        """The snapshot replaces everything but the answers to our own writes that are newer."""
        coming, self._coming = self._coming or {}, None
        gone = [name for name in self.names() if name not in coming]
        for name in gone:
            self._take(name, None)
        for name, new in coming.items():
            self._take(name, new)
        return AppliedFrame([*coming, *gone], completed=True)

    def _take(self, name: Name, new: Versioned | None) -> bool:
        """Put what a frame has, which may be what we wrote.

        When someone had written the same before us, the frame has an older version, and no other
        one follows.
        """
        if name in self._echoes:
            kind, key = name
            mine = self._objects[kind][key]
            if new is None or new[0] >= mine[0] or new[1] == mine[1]:
                self._echoes.pop(name).set()
        return self._put(name, new)

    def _put(self, name: Name, new: Versioned | None) -> bool:
        """Whether this is news: what has the higher version is newer; 0 is not known.

        What we wrote comes back from the watch, and is no news then.
        """
        kind, key = name
        known = self._objects.setdefault(kind, {})
        if new is None:
            return known.pop(key, None) is not None
        old = known.get(key)
        if old and (new == old or 0 < new[0] < old[0]):
            return False
        known[key] = new
        # What we took for the result of a write may have its members in another order.
        return not (old and new[0] == old[0] and _read(new) == _read(old))

    def _paths(self, kind: str) -> tuple[FieldPath, ...]:
        return next(want.paths for want in self.projections if want.kind == kind)


def _read(known: Versioned) -> Json:
    value: Json = orjson.loads(known[1])
    return value


@dataclass(frozen=True, slots=True)
class FormerNode:
    """A Node that is no more: until when its name may lead to its machine, and both identities."""

    until: float
    machine: str
    system_uuid: str


class MachineHolders:
    """The Nodes of each machine, for a kubelet may write any provider ID.

    All Nodes have to be in here, not only those that this worker owns.
    """

    def __init__(
        self, machine_of: Callable[[str], str], is_ours: Callable[[str], object] = bool
    ) -> None:
        """`is_ours`: whether a provider ID is one of the cloud at all."""
        self._machine_of, self._is_ours = machine_of, is_ours
        self._nodes: dict[str, dict[str, tuple[str, str, str]]] = {}  # by machine: name → age, UUID
        self._oldest: dict[str, str] = {}  # by machine: of those that name it
        self._machines: dict[str, str] = {}  # by the name of the Node
        self._former: dict[str, FormerNode] = {}  # by the name of the Node, in the order of time
        self._gone: set[str] = set()  # machines that the cloud called gone, of Nodes that are left
        self._kept: dict[str, tuple[str, str]] = {}  # by machine: who keeps it, and why
        self._settled: dict[str, ClaimFacts] = {}  # by machine, as all were compared with it

    def update(self, name: str, node: Node | None, keeps_first: bool = False) -> set[str]:
        """Take in a Node, or that there is none; who else has lost or won a machine by that.

        With `keeps_first` who has a machine keeps it from one that names it later, however old
        that is.
        """
        before = self._machines.pop(name, "")
        machine = self._machine(node.provider_id) if node and node.provider_id else ""
        claim = (*node.age_order, node.system_uuid) if node else None
        for item in (before, machine):
            self._settled.pop(item, None)
        if before and machine == before and self._nodes[before][name] == claim:
            self._machines[name] = machine
            return set()
        held = {item: self._holder_of(item) for item in (before, machine)}
        if before:
            *age, system_uuid = self._leave(name, before)
            if node is None or tuple(age) != node.age_order:
                self._remember(name, before, system_uuid)
        if machine != before:
            if self._keeper(before) == name:
                del self._kept[before]
            if keeps_first and held[machine] not in ("", self._keeper(machine)):
                self._kept[machine] = held[machine], FIRST
        if claim and machine:
            self._join(name, machine, claim)
        now = {item: self._holder_of(item) for item in held}
        moved = (item for item, holder in held.items() if now[item] != holder)
        return {other for item in moved for other in (held[item], now[item])} - {name, ""}

    def _join(self, name: str, machine: str, claim: tuple[str, str, str]) -> None:
        self._machines[name] = machine
        nodes = self._nodes.setdefault(machine, {})
        nodes[name] = claim
        if claim < nodes[self._oldest.setdefault(machine, name)]:
            self._oldest[machine] = name

    def _leave(self, name: str, machine: str) -> tuple[str, str, str]:
        """The claim that it had."""
        nodes = self._nodes[machine]
        claim = nodes.pop(name)
        if not nodes:
            del self._nodes[machine], self._oldest[machine]
        elif self._oldest[machine] == name:
            self._oldest[machine] = min(nodes, key=nodes.__getitem__)
        return claim

    def _remember(self, name: str, machine: str, system_uuid: str) -> None:
        now = time.monotonic()
        self._former.pop(name, None)
        self._former[name] = FormerNode(now + FORMER_NODE_COUNTS, machine, system_uuid)
        while (first := self._former[oldest := next(iter(self._former))]).until < now:
            del self._former[oldest]
            self._gone.discard(first.machine)

    def on_gone(self, provider_id: str) -> None:
        """The cloud called this machine gone, and its Node is deleted for that."""
        self._gone.add(self._machine(provider_id))

    def is_of_former(self, machine: Instance, node: Node) -> bool:
        """Whether it is the machine of an earlier Node of this name, and not this one's.

        A cloud's list may name it for a while after it ended. The same kubelet that registers again
        reports the same UUID; of those that report none, the machine must have been called gone.
        """
        former = self._former.get(node.name)
        if (
            former is None
            or former.until < time.monotonic()
            or former.machine not in self.keys_of(machine)
        ):
            return False
        if former.system_uuid and node.system_uuid:
            return former.system_uuid.lower() != node.system_uuid.lower()
        return former.machine in self._gone

    def holder(self, name: str) -> str:
        """The other Node that has this one's machine; empty when this Node has it.

        It is the one that the cloud says is on it, else who had it when others named it, or the
        oldest.
        """
        holder = self._holder_of(self._machines.get(name, ""))
        return "" if holder == name else holder

    def _keeper(self, machine: str) -> str:
        return self._kept.get(machine, ("", ""))[0]

    def _holder_of(self, machine: str) -> str:
        keeper = self._keeper(machine)
        is_there = keeper in self._nodes.get(machine, ())
        return keeper if is_there else self._oldest.get(machine, "")

    def why_not(self, name: str) -> str:
        """The Event of a Node that gets nothing, because another has its machine."""
        holder = self.holder(name)
        keeper, why = self._kept.get(self._machines.get(name, ""), ("", ""))
        return duplicate_message(holder, why if holder == keeper else OLDER) if holder else ""

    def claimants(self, machine: Instance) -> set[str]:
        """All Nodes that name this machine."""
        return {name for item in self.keys_of(machine) for name in self._nodes.get(item, ())}

    def is_shared(self, name: str) -> bool:
        """Whether others name the machine of this Node as well."""
        return len(self._nodes.get(self._machines.get(name, ""), ())) > 1

    def sharing(self, names: Iterable[str]) -> set[str]:
        """All Nodes that name the machine of one of these, where several do."""
        nodes = (self._nodes.get(item, {}) for item in {self._machines.get(it, "") for it in names})
        return {name for named in nodes if len(named) > 1 for name in named}

    def is_settled(self, machine: Instance, name: str) -> bool:
        """Whether all that name it, this Node among them, were compared with what the cloud says,
        and are as they were then.
        """
        mine = self._machines.get(name, "")
        named = [item for item in self.keys_of(machine) if item in self._nodes]
        return named == [mine] and self._settled.get(mine) == facts_of(machine)

    def settle(self, machine: Instance, nodes: Iterable[Node]) -> set[str]:
        """Give a machine to that of `nodes` which fits what the cloud says of it best.

        The names of all that name it, if that is new.
        """
        compared, keys = [*nodes], self.keys_of(machine)
        named = {self._machines.get(node.name, "") for node in compared}
        for item in keys:
            self._settled.pop(item, None)
        if len(named) == 1 and named <= keys:
            self._settled |= dict.fromkeys(named, facts_of(machine))
        rightful = rightful_node(compared, machine)
        items = keys if rightful else ()
        new = [item for item in items if self._keeper(item) != rightful]
        self._kept |= dict.fromkeys(items, (rightful, BY_CLOUD))
        return {name for item in new for name in self._nodes.get(item, ())}

    def keys_of(self, machine: Instance) -> frozenset[str]:
        """What its provider IDs name, however they are written."""
        return frozenset(map(self._machine, (machine.provider_id, *machine.aliases)))

    def older_on(self, machine: Instance, node: Node) -> str:
        """The older Node that has the machine which `node` is about to get, and keeps it."""
        older = {
            name: age
            for item in self.keys_of(machine)
            for name, age in self._nodes.get(item, {}).items()
            if age[:2] < node.age_order and node.name not in (name, self._keeper(item))
        }
        return min(older, key=older.__getitem__, default="")

    def _machine(self, provider_id: str) -> str:
        """What distinguishes it; empty for what is none of this cloud's, which names none."""
        try:
            if self._is_ours(provider_id):
                return self._machine_of(provider_id) or provider_id
        except Exception:  # a provider's code, about whatever a kubelet wrote
            log.exception("provider ID not understood", extra={"provider_id": provider_id})
            return provider_id
        return ""


def duplicate_message(holder: str, why: str = OLDER) -> str:
    """The Event of a Node that gets nothing, because another one has its machine."""
    return f"Node {holder} has the same machine and {why}: delete the one that is not on it"
