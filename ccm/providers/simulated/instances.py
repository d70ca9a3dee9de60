"""What the simulated cloud says about Nodes: many to a call, and three answers, never two."""

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ccm.errors import CloudError
from ccm.model.cloud import AddressType, Answer, Gone, Instance, NodeAddress, PowerState, Unknown
from ccm.model.objects import Node, mapping, objects, text
from ccm.providers.simulated.api import LookupResult, SimulatedApi

SCHEME = "simulated"
POWER_STATES = {
    "starting": PowerState.RUNNING,
    "running": PowerState.RUNNING,
    "stopping": PowerState.STOPPED,
    "stopped": PowerState.STOPPED,
}
QUERYABLE_VALUE = re.compile(r"[A-Za-z0-9._-]+")
"""What may stand in a comma-separated query; it holds every node name and machine id."""


@dataclass(frozen=True, slots=True)
class MachineQuery:
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
        queries, answers = queries_for(nodes)
        batched = list(batches(queries, self.batch_size))
        results = await asyncio.gather(*(self._look_up(query) for query in batched))
        failures = [result for result in results if isinstance(result, CloudError)]
        if failures and len(failures) == len(results):
            raise failures[0]
        for query, result in zip(batched, results, strict=True):
            answers |= read_answers(query, result)
        return answers

    async def _look_up(self, query: MachineQuery) -> LookupResult | CloudError:
        try:
            return await self._api.machines(query.by, list(query.nodes.values()))
        except CloudError as failure:
            return failure


def queries_for(nodes: Sequence[Node]) -> tuple[list[MachineQuery], dict[str, Answer]]:
    """What to ask the cloud about, by id and by name, and the answers that need no query."""
    by_id: dict[str, str] = {}
    by_name: dict[str, str] = {}
    answers: dict[str, Answer] = {}
    for node in nodes:
        machine_id = node.provider_id.removeprefix(f"{SCHEME}://")
        if node.is_foreign(SCHEME):
            answers[node.name] = Unknown(f"provider ID {node.provider_id} is of another cloud")
        elif not QUERYABLE_VALUE.fullmatch(machine_id if node.provider_id else node.name):
            answers[node.name] = Unknown(f"{node.provider_id or node.name!r} names no machine")
        elif node.provider_id:
            by_id[node.name] = machine_id
        else:
            by_name[node.name] = node.name
    return [MachineQuery("ids", by_id), MachineQuery("names", by_name)], answers


def batches(queries: Sequence[MachineQuery], size: int) -> Iterator[MachineQuery]:
    """The queries cut into calls of at most `size` Nodes."""
    for query in queries:
        names = list(query.nodes)
        for start in range(0, len(names), size):
            chosen = names[start : start + size]
            yield MachineQuery(query.by, {name: query.nodes[name] for name in chosen})


def read_answers(query: MachineQuery, result: LookupResult | CloudError) -> dict[str, Answer]:
    """What the result of one call says about each of its Nodes."""
    if isinstance(result, CloudError):
        return dict.fromkeys(query.nodes, Unknown(str(result)))
    answers: dict[str, list[Answer]] = defaultdict(list)
    for record in result.records:
        fields = mapping(record)
        answers[text(fields.get(query.key))].append(read_machine(fields))
    return {
        node: answer_for(value, answers.get(value, []), value in result.not_found)
        for node, value in query.nodes.items()
    }


def answer_for(value: str, answers: list[Answer], is_absent: bool) -> Answer:
    """The one answer that all records about a name or id come to."""
    if is_absent and answers:
        return Unknown(f"the cloud says both that {value} is there and that it is not")
    if is_absent:
        return Gone(f"the cloud has no machine {value}")
    if not answers:
        return Unknown(f"the cloud's answer leaves {value} out")
    existing = [answer for answer in answers if not isinstance(answer, Gone)]
    if len(existing) > 1:
        ids = sorted(a.provider_id if isinstance(a, Instance) else "?" for a in existing)
        return Unknown(f"{len(ids)} machines are named {value}: {', '.join(ids)}")
    return existing[0] if existing else answers[0]


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
        power=POWER_STATES.get(power, PowerState.UNKNOWN),
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
