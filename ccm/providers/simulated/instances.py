"""What the simulated cloud says about Nodes: many to a call, and three answers, never two."""

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ccm.errors import CloudError
from ccm.model.cloud import (
    AddressType,
    Answer,
    Gone,
    Instance,
    NodeAddress,
    PowerState,
    Unknown,
)
from ccm.model.node import Node
from ccm.model.objects import mapping, objects, text
from ccm.providers.simulated.api import Found, SimulatedApi

SCHEME = "simulated"
POWER = {
    "starting": PowerState.RUNNING,
    "running": PowerState.RUNNING,
    "stopping": PowerState.STOPPED,
    "stopped": PowerState.STOPPED,
}
ASKABLE = re.compile(r"[A-Za-z0-9._-]+")
"""What may stand in a comma-separated question; it holds every node name and machine id."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """One call's worth of Nodes, by what the cloud is asked for."""

    by: str
    nodes: Mapping[str, str]  # node name to machine name or id

    @property
    def key(self) -> str:
        """The field of a machine that holds what was asked for."""
        return "id" if self.by == "ids" else "name"


class SimulatedInstances:
    """Looks Nodes up by provider ID, or by name while they have none."""

    def __init__(self, api: SimulatedApi, batch_size: int) -> None:
        self.batch_size = batch_size
        self._api = api

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, Answer]:
        """Answer for each Node; a call that failed makes only its own Nodes `Unknown`."""
        questions, answers = questions_of(nodes)
        lookups = list(batches(questions, self.batch_size))
        results = await asyncio.gather(*(self._look_up(lookup) for lookup in lookups))
        failures = [result for result in results if isinstance(result, CloudError)]
        if failures and len(failures) == len(results):
            raise failures[0]
        for lookup, result in zip(lookups, results, strict=True):
            answers |= judge(lookup, result)
        return answers

    async def _look_up(self, lookup: Lookup) -> Found | CloudError:
        try:
            return await self._api.machines(lookup.by, list(lookup.nodes.values()))
        except CloudError as failure:
            return failure


def questions_of(nodes: Sequence[Node]) -> tuple[list[Lookup], dict[str, Answer]]:
    """What to ask the cloud about, by id and by name, and the answers that need no question."""
    by_id: dict[str, str] = {}
    by_name: dict[str, str] = {}
    answers: dict[str, Answer] = {}
    for node in nodes:
        machine_id = node.provider_id.removeprefix(f"{SCHEME}://")
        if node.is_foreign(SCHEME):
            answers[node.name] = Unknown(f"provider ID {node.provider_id} is of another cloud")
        elif not ASKABLE.fullmatch(machine_id if node.provider_id else node.name):
            answers[node.name] = Unknown(f"{node.provider_id or node.name!r} names no machine")
        elif node.provider_id:
            by_id[node.name] = machine_id
        else:
            by_name[node.name] = node.name
    return [Lookup("ids", by_id), Lookup("names", by_name)], answers


def batches(questions: Sequence[Lookup], size: int) -> Iterator[Lookup]:
    """The questions cut into calls of at most `size` Nodes."""
    for question in questions:
        names = list(question.nodes)
        for start in range(0, len(names), size):
            chosen = names[start : start + size]
            yield Lookup(question.by, {name: question.nodes[name] for name in chosen})


def judge(lookup: Lookup, result: Found | CloudError) -> dict[str, Answer]:
    """What the result of one call says about each of its Nodes."""
    if isinstance(result, CloudError):
        return dict.fromkeys(lookup.nodes, Unknown(str(result)))
    said: dict[str, list[Answer]] = defaultdict(list)
    for record in result.records:
        fields = mapping(record)
        said[text(fields.get(lookup.key))].append(read_machine(fields))
    return {
        node: one_of(asked, said.get(asked, []), asked in result.absent)
        for node, asked in lookup.nodes.items()
    }


def one_of(asked: str, said: list[Answer], is_absent: bool) -> Answer:
    """The one answer in everything that was said about a name or id."""
    if is_absent and said:
        return Unknown(f"the cloud says both that {asked} is there and that it is not")
    if is_absent:
        return Gone(f"the cloud has no machine {asked}")
    if not said:
        return Unknown(f"the cloud's answer leaves {asked} out")
    existing = [answer for answer in said if not isinstance(answer, Gone)]
    if len(existing) > 1:
        ids = sorted(a.provider_id if isinstance(a, Instance) else "?" for a in existing)
        return Unknown(f"{len(ids)} machines are named {asked}: {', '.join(ids)}")
    return existing[0] if existing else said[0]


def read_machine(fields: Mapping[str, object]) -> Answer:
    """The answer in one record; `Unknown` when it is not what a record should be."""
    machine_id, power = text(fields.get("id")), text(fields.get("power"))
    addresses = read_addresses(fields.get("addresses"))
    if not machine_id or not power or addresses is None:
        return Unknown("the cloud's record lacks an id, a power state or addresses")
    if power == "terminated":
        return Gone(f"machine {machine_id} is terminated")
    labels = mapping(fields.get("labels"))
    return Instance(
        provider_id=f"{SCHEME}://{machine_id}",
        type=text(fields.get("type")),
        zone=text(fields.get("zone")),
        region=text(fields.get("region")),
        addresses=addresses,
        labels={key: value for key, value in labels.items() if isinstance(value, str)},
        power=POWER.get(power, PowerState.UNKNOWN),
    )


def read_addresses(value: object) -> tuple[NodeAddress, ...] | None:
    """The addresses a Node can have; None when this is not a list of addresses."""
    if not isinstance(value, list) or len(objects(value)) != len(value):
        return None
    pairs = [(text(item.get("type")), text(item.get("address"))) for item in objects(value)]
    if not all(address for _, address in pairs):
        return None
    known = set(AddressType)
    return tuple(NodeAddress(AddressType(kind), ip) for kind, ip in pairs if kind in known)
