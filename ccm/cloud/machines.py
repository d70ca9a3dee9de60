"""The machines of a cloud: read the list, find each Node's machine, prove that one is gone.

What is particular to a cloud are the reads and how a Node's machine is found in them; the order of
the steps, what nothing can be asked about, and what is proof are the same for all.
"""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from ccm.cloud.lookup import NOT_UNDERSTOOD, batches, read_each
from ccm.errors import CloudError, ConfigurationFault
from ccm.model.cloud import Answer, Gone, Instance, Unknown
from ccm.model.objects import Json, Node, text

K = TypeVar("K")
L = TypeVar("L")
M = TypeVar("M")
T = TypeVar("T")

MAX_REASONS = 3  # in one message
MOST_PROOFS = 10  # under way together
LEAST_ASKED = 3  # machines; fewer may end at once
ANY_MACHINE = "any"
"""Among the marks that are required: whatever the rest of the configuration implies is not."""


NOT_FOUND = Unknown("no machine was found", is_nowhere=True)
Prove = Callable[[Sequence[Node], Mapping[str, Answer], Any], Awaitable[dict[str, Answer]]]


@dataclass(slots=True)
class Listing(Generic[K, M]):
    """What a cloud lists, and why something may be missing in it."""

    by_id: dict[K, M] = field(default_factory=dict)
    incomplete_reasons: list[str] = field(default_factory=list)

    @property
    def records(self) -> list[M]:
        return [*self.by_id.values()]

    def verify_complete(self) -> None:
        """Raise `CloudError` when something may be missing."""
        verify_complete(self.incomplete_reasons)


def listed_by(key: str, records: Iterable[Json]) -> Listing[str, Json]:
    """Records by their field `key`, a text; one without it is left out, and may be anybody's."""
    found = Listing[str, Json]()
    for record in records:
        if name := text(record.get(key)):
            found.by_id[name] = record
        else:
            found.incomplete_reasons.append(f"a record in the list has no {key}")
    return found


def join_reasons(reasons: Iterable[str]) -> str:
    """The first few reasons as one text, each once."""
    return "; ".join([*dict.fromkeys(reasons)][:MAX_REASONS])


def verify_complete(reasons: Iterable[str], what: str = "") -> None:
    """Raise `CloudError` when there are reasons why `what` is not known in full."""
    if why := join_reasons(reasons):
        raise CloudError(f"{what} is not known: {why}" if what else why)


def verify_any(asked: int, found: int, what: str) -> None:
    """Raise `CloudError` for a list that has none of several things: then it lacks the rest, too.

    What is behind load balancers goes by such lists, and would all leave at once.
    """
    if asked >= LEAST_ASKED and not found:
        raise CloudError(f"the cloud lists none of the {asked} {what}: that is not trusted")


def why_not_asked(
    node: Node, provider_ids: re.Pattern[str], machine_of: Callable[[str], str], noun: str
) -> str:
    """Why a cloud with these provider IDs cannot be asked about a Node; empty when it can."""
    provider_id = node.provider_id
    if node.is_foreign(provider_ids):
        return f"provider ID {provider_id} is of another cloud"
    if provider_id and not machine_of(provider_id):
        return f"provider ID {provider_id} names no {noun}"
    return ""


def foreign_text(what: str, lacking: Iterable[str]) -> str:
    """Why a machine is not the cluster's."""
    return f"{what} does not belong to this cluster: it lacks {', '.join(sorted(lacking))}"


def confirmed(first: Answer | None, second: Answer) -> Answer:
    """What two kinds of read say together, the first of which found no machine or an ended one.

    No single kind of read proves that a machine is gone: it may be the one that is wrong.
    """
    if isinstance(second, Instance):
        return Unknown("one read finds no machine, another one does")
    if isinstance(second, Gone):
        is_final = isinstance(first, Gone) and first.is_final and second.is_final
        return replace(first if isinstance(first, Gone) else second, is_final=is_final)
    return second


class MachineLookup(ABC, Generic[L, M]):
    """The `Instances` of a cloud: a provider says how machines are read, found and proven gone.

    `L` is what one read for a batch of Nodes gives, such as a `Listing`; `M` is one machine in it.
    `noun` is what this cloud calls a machine.

    A kubelet may name any machine of the account, by name and by ID: those that lack one of
    `required_marks` are no Node's. `mark_kinds` are the kinds of marks that this cloud has.
    """

    provider_ids: re.Pattern[str]
    batch_size: int
    noun: str = "machine"
    mark_kinds: Sequence[str] = ()
    required_marks: frozenset[str] = frozenset()

    @abstractmethod
    def machine_of(self, provider_id: str) -> str:
        """As in the interface: the one way to name the machine; empty when it names none."""

    @abstractmethod
    async def read(self, nodes: Sequence[Node]) -> L:
        """Read what these Nodes are looked up in, at most `batch_size` of them."""

    @abstractmethod
    async def find(self, node: Node, listing: L) -> Sequence[M] | Answer:
        """The machines that a Node may be; none when nothing shows that there is one.

        An answer instead: `Unknown` where one is not known from `listing`; `Gone` where the cloud
        names the machine and says that it ended, which still has to be proven for a Node with a
        provider ID.
        """

    @abstractmethod
    async def instance(self, node: Node, machine: M, listing: L) -> Answer:
        """What the machine is, with the Node's own provider ID where it has one."""

    @abstractmethod
    async def prove_gone(self, node: Node, listing: L) -> Answer:
        """The answer about a Node whose machine `listing` lacks or calls ended.

        `Gone` needs a read of another kind than the list: the machine by its ID, a filter, an
        index.
        """

    async def why_incomplete(self, nodes: Sequence[Node], listing: L) -> Sequence[str]:
        """Why `listing` may lack the machines of these Nodes although they are there.

        Asked once for all of them, before `prove_gone`.
        """
        return listing.incomplete_reasons if isinstance(listing, Listing) else ()

    async def prepare(self, machines: Sequence[M], listing: L) -> None:
        """Read what `instance` needs of all machines that were found, in few calls."""

    def why_not_asked(self, node: Node) -> str:
        """Why nothing can be asked about a Node; empty when it can."""
        return why_not_asked(node, self.provider_ids, self.machine_of, self.noun)

    def marks(self, machine: M) -> Collection[str]:
        """What only the cloud's owner can give a machine, by kind, such as `tag:workers`."""
        return ()

    def require_marks(self, marks: Collection[str]) -> None:
        """As in the interface."""
        for mark in marks:
            kind, _, value = mark.partition(":")
            if mark != ANY_MACHINE and not (kind in self.mark_kinds and value):
                kinds = ", ".join(f"{item}:…" for item in self.mark_kinds) or "none at all"
                problem = f"{mark!r} is no mark of this cloud's machines"
                raise ConfigurationFault("--machine-marks", problem, f"it has {kinds}")
        implied = frozenset[str]() if ANY_MACHINE in marks else self.required_marks
        self.required_marks = implied | {*marks} - {ANY_MACHINE}

    def why_foreign(self, machine: M) -> str:
        """Why a machine is not the cluster's; empty when it is."""
        if not self.required_marks:
            return ""
        try:
            lacking = self.required_marks - {*self.marks(machine)}
        except NOT_UNDERSTOOD as error:
            return _not_understood(error)
        return foreign_text(f"{self.noun} {self.label(machine)}", lacking) if lacking else ""

    async def foreign(self, nodes: Sequence[Node]) -> Mapping[str, str]:
        """As in the interface."""
        verdicts = {node.name: why for node in nodes if (why := self.why_not_asked(node))}
        asked = [node for node in nodes if node.name not in verdicts]
        for batch in batches(asked, self.batch_size):
            listing = await self.read(batch)
            for node in batch:
                found = await _unless_failed(self.find(node, listing))
                if found and not isinstance(found, Instance | Gone | Unknown):
                    reasons = list(map(self.why_foreign, found))
                    verdicts[node.name] = reasons[0] if all(reasons) else ""
        return verdicts

    def label(self, machine: M) -> str:
        """The machine in a message."""
        return str(machine)

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, Answer]:
        """As in the interface; a batch that failed makes only its own Nodes `Unknown`."""
        return await self._describe(nodes, self._prove)

    async def look_up(self, nodes: Sequence[Node]) -> Mapping[str, Answer]:
        """As in the interface."""
        return await self._describe(nodes, _not_proven)

    async def _describe(self, nodes: Sequence[Node], prove: Prove) -> Mapping[str, Answer]:
        reasons = {node.name: why for node in nodes if (why := self.why_not_asked(node))}
        answers: dict[str, Answer] = {name: Unknown(why) for name, why in reasons.items()}
        asked = [node for node in nodes if node.name not in reasons]
        split = dict(enumerate(batches(asked, self.batch_size)))
        reads = {at: self._describe_batch(some, prove) for at, some in split.items()}
        results = await read_each(reads)
        for at, result in results.items():
            if isinstance(result, CloudError):
                result = all_unknown(split[at], [str(result)])
            answers |= result
        return {node.name: answers[node.name] for node in nodes}

    async def _describe_batch(self, nodes: Sequence[Node], prove: Prove) -> dict[str, Answer]:
        listing = await self.read(nodes)
        answers, machines = dict[str, Answer](), dict[str, M]()
        results = await asyncio.gather(
            *(_unless_failed(self.find(node, listing)) for node in nodes)
        )
        for node, found in zip(nodes, results, strict=True):
            if isinstance(found, Instance | Gone | Unknown):
                answers[node.name] = found
            elif found:
                item = self._only(node, found)
                if isinstance(item, Unknown):
                    answers[node.name] = item
                else:
                    machines[node.name] = item
        await self.prepare([*machines.values()], listing)
        reads = [
            _unless_failed(self.instance(node, machines[node.name], listing))
            for node in nodes
            if node.name in machines
        ]
        answers |= zip(machines, await asyncio.gather(*reads), strict=True)
        return answers | await prove(nodes, answers, listing)

    def _only(self, node: Node, found: Sequence[M]) -> M | Unknown:
        """The one machine of the cluster's among those that a Node may be."""
        own = [item for item in found if not self.why_foreign(item)]
        if not own:
            return Unknown(self.why_foreign(found[0]))
        if len(own) > 1:
            where = ", ".join(sorted(map(self.label, own)))
            return Unknown(f"several {self.noun}s are node {node.name}: {where}")
        return own[0]

    async def _prove(
        self, nodes: Sequence[Node], answers: Mapping[str, Answer], listing: L
    ) -> dict[str, Answer]:
        """What is proven of Nodes whose machine was not found, or was called gone by an ID."""
        missing = [
            node
            for node in nodes
            if (answer := answers.get(node.name)) is None
            or (isinstance(answer, Gone) and node.provider_id)
        ]
        if not missing:
            return {}
        reasons = await _unless_failed(self.why_incomplete(missing, listing))
        if isinstance(reasons, Unknown):
            reasons = [reasons.why]
        if reasons:
            return all_unknown(missing, reasons)
        proven = dict[str, Answer]()
        for some in batches(missing, MOST_PROOFS):  # others who wait for calls have some as well
            proofs = (_unless_failed(self.prove_gone(node, listing)) for node in some)
            proven |= {
                node.name: confirmed(answers.get(node.name), proof)
                for node, proof in zip(some, await asyncio.gather(*proofs), strict=True)
            }
        return proven


async def _not_proven(
    nodes: Sequence[Node], answers: Mapping[str, Answer], listing: object
) -> dict[str, Answer]:
    """Unknown for all of which no machine was found."""
    missing = (node for node in nodes if not isinstance(answers.get(node.name), Instance))
    return {node.name: answers.get(node.name) or NOT_FOUND for node in missing}


def all_unknown(nodes: Iterable[Node], reasons: Iterable[str]) -> dict[str, Answer]:
    """One answer for all of these Nodes."""
    return dict.fromkeys((node.name for node in nodes), Unknown(join_reasons(reasons)))


async def _unless_failed(read: Awaitable[T]) -> T | Unknown:
    """A record that lacks what is read from it costs its own Node an answer, and no other."""
    try:
        return await read
    except CloudError as error:
        return Unknown(str(error))
    except NOT_UNDERSTOOD as error:
        return Unknown(_not_understood(error))


def _not_understood(error: Exception) -> str:
    return f"the cloud's record is not understood: {type(error).__name__}: {error}"
