"""What the simulated cloud says about Nodes: many to a call, and three answers, never two."""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from ccm.cloud.lookup import read_each
from ccm.cloud.machines import MachineLookup
from ccm.cloud.shared_read import SharedRead
from ccm.errors import CloudError
from ccm.model.cloud import AddressType, Answer, Gone, Instance, NodeAddress, PowerState, Unknown
from ccm.model.objects import Node, mapping, objects, text
from ccm.providers.simulated.api import SimulatedApi

SCHEME = "simulated"
PROVIDER_IDS = re.compile(f"{SCHEME}://.*")
POWER_STATES = {
    "running": PowerState.RUNNING,
    "stopped": PowerState.STOPPED,
}
QUERYABLE_VALUE = re.compile(r"[A-Za-z0-9._-]+")
"""What may stand in a comma-separated query; it holds every node name and machine id."""


Found = Mapping[tuple[str, str], Sequence[Instance] | Answer]
"""By what was asked for, an ID or a name, and its value."""


class SimulatedInstances(MachineLookup[Found, Instance]):
    """Looks Nodes up by provider ID, or by name while they have none."""

    provider_ids = PROVIDER_IDS
    mark_kinds = ("label",)

    def __init__(self, api: SimulatedApi, batch_size: int) -> None:
        self.batch_size = batch_size
        self._api = api
        self._read_names = SharedRead(partial(self._look_up, "name"), batch_size)

    def machine_of(self, provider_id: str) -> str:
        machine_id = provider_id.removeprefix(f"{SCHEME}://")
        return machine_id if QUERYABLE_VALUE.fullmatch(machine_id) else ""

    def why_not_asked(self, node: Node) -> str:
        is_askable = node.provider_id or QUERYABLE_VALUE.fullmatch(node.name)
        return super().why_not_asked(node) if is_askable else f"{node.name!r} names no machine"

    async def read(self, nodes: Sequence[Node]) -> Found:
        """One call for those that have an ID, and one for the others."""
        asked = defaultdict[str, list[str]](list)
        for node in nodes:
            key, value = self._question(node)
            asked[key].append(value)
        found = dict[tuple[str, str], Sequence[Instance] | Answer]()
        reads = {key: self._look_up(key, values) for key, values in asked.items()}
        for key, result in (await read_each(reads)).items():
            for value in asked[key]:
                found[key, value] = (
                    Unknown(str(result)) if isinstance(result, CloudError) else result[value]
                )
        return found

    async def find(self, node: Node, listing: Found) -> Sequence[Instance] | Answer:
        return listing[self._question(node)]

    async def instance(self, node: Node, machine: Instance, listing: Found) -> Answer:
        return machine

    def marks(self, machine: Instance) -> Collection[str]:
        return {f"label:{key}={value}" for key, value in machine.labels.items()}

    def label(self, machine: Instance) -> str:
        return machine.provider_id

    async def prove_gone(self, node: Node, listing: Found) -> Answer:
        """By the Node's name: the machine of that name is another."""
        if not QUERYABLE_VALUE.fullmatch(node.name):
            return Unknown(f"{node.name!r} names no machine")
        named = (await self._read_names(node.name))[node.name]
        if not isinstance(named, Sequence):
            return named
        same = [item for item in named if item.provider_id == node.provider_id]
        return same[0] if same else Gone(f"machine {node.name} is {named[0].provider_id}")

    def _question(self, node: Node) -> tuple[str, str]:
        if node.provider_id:
            return "id", self.machine_of(node.provider_id)
        return "name", node.name

    async def _look_up(
        self, key: str, values: Sequence[str]
    ) -> Mapping[str, Sequence[Instance] | Answer]:
        result = await self._api.machines(f"{key}s", values)
        records = defaultdict[str, list[Answer]](list)
        for fields in map(mapping, result.records):
            records[text(fields.get(key))].append(read_machine(fields))
        return {value: one_found(value, records[value], result.not_found) for value in values}


def one_found(
    value: str, found: Sequence[Answer], not_found: Collection[str]
) -> Sequence[Instance] | Answer:
    """What one call says about the machines of this ID or name."""
    if value in not_found:
        contradiction = f"the cloud reports both that {value} exists and that it does not"
        return Unknown(contradiction) if found else Gone(f"the cloud has no machine {value}")
    current = [item for item in found if isinstance(item, Instance)]
    unknown = [item for item in found if isinstance(item, Unknown)]
    left_out = Unknown(f"the cloud's answer leaves {value} out")
    return current if current and not unknown else (*unknown, *found, left_out)[0]


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
        names=(text(fields.get("name")),),
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
