"""What the simulated cloud says about Nodes: many to a call, and three answers, never two."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from ccm.cloud.lookup import Lookup, look_up_async, one_answer
from ccm.model.cloud import AddressType, Answer, Gone, Instance, NodeAddress, PowerState, Unknown
from ccm.model.objects import Node, mapping, objects, text
from ccm.providers.simulated.api import LookupResult, SimulatedApi

SCHEME = "simulated"
PROVIDER_IDS = re.compile(f"{SCHEME}://.*")
POWER_STATES = {
    "running": PowerState.RUNNING,
    "stopped": PowerState.STOPPED,
}
QUERYABLE_VALUE = re.compile(r"[A-Za-z0-9._-]+")
"""What may stand in a comma-separated query; it holds every node name and machine id."""


class SimulatedInstances:
    """Looks Nodes up by provider ID, or by name while they have none."""

    def __init__(self, api: SimulatedApi, batch_size: int) -> None:
        self.batch_size = batch_size
        self._api = api

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, Answer]:
        """Answer for each Node; a call that failed makes only its own Nodes `Unknown`."""
        by_id: dict[str, str] = {}
        by_name: dict[str, str] = {}
        answers: dict[str, Answer] = {}
        for node in nodes:
            machine_id = node.provider_id.removeprefix(f"{SCHEME}://")
            if node.is_foreign(PROVIDER_IDS):
                answers[node.name] = Unknown(f"provider ID {node.provider_id} is of another cloud")
            elif not QUERYABLE_VALUE.fullmatch(machine_id if node.provider_id else node.name):
                answers[node.name] = Unknown(f"{node.provider_id or node.name!r} names no machine")
            elif node.provider_id:
                by_id[node.name] = machine_id
            else:
                by_name[node.name] = node.name
        ids = Lookup(by_id, partial(self._look_up, "id"))
        names = Lookup(by_name, partial(self._look_up, "name"))
        return answers | await look_up_async(self.batch_size, ids, names)

    async def confirm_gone(self, nodes: Sequence[Node]) -> Mapping[str, Answer]:
        """The same by the names of Nodes that have an ID: the machine of that name is another."""
        names = {node.name: node.name for node in nodes if QUERYABLE_VALUE.fullmatch(node.name)}
        found = await look_up_async(self.batch_size, Lookup(names, partial(self._look_up, "name")))
        return {
            node.name: Gone(f"machine {node.name} is {answer.provider_id}")
            if isinstance(answer := found.get(node.name), Instance)
            and answer.provider_id != node.provider_id
            else answer or Unknown(f"{node.name!r} names no machine")
            for node in nodes
        }

    async def _look_up(self, key: str, values: Sequence[str]) -> Mapping[str, Answer]:
        return read_answers(await self._api.machines(f"{key}s", values), key)


def read_answers(result: LookupResult, key: str) -> dict[str, Answer]:
    """What one call says about machines, by the field that was asked for."""
    found: dict[str, list[Answer]] = defaultdict(list)
    for fields in map(mapping, result.records):
        found[text(fields.get(key))].append(read_machine(fields))
    answers = {
        value: one_answer(some, f"machines are named {value}") for value, some in found.items()
    }
    for value in result.not_found:
        contradiction = f"the cloud says both that {value} is there and that it is not"
        absent = Gone(f"the cloud has no machine {value}")
        answers[value] = Unknown(contradiction) if value in found else absent
    return answers


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
