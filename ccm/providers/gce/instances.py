"""What Compute Engine says about Nodes: one list of all zones, and three answers, never two."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ccm.cloud.lookup import in_turns
from ccm.cloud.machines import Listing, MachineLookup
from ccm.errors import NotFound, Refused
from ccm.model.cloud import (
    AddressType,
    Answer,
    Gone,
    Instance,
    NodeAddress,
    PowerState,
    Unknown,
    read_address,
)
from ccm.model.objects import Json, Node, mapping, objects, text
from ccm.providers.gce import ids
from ccm.providers.gce.api import GceApi
from ccm.providers.gce.ids import InstanceRef, last_part, path_of_url

BATCH = 1000
MOST_INTERFACES, MOST_CONFIGS = 100, 10  # that are looked at; an instance has 16 and 1
POWER_STATES = {
    **dict.fromkeys(("TERMINATED", "SUSPENDED"), PowerState.STOPPED),
    **dict.fromkeys(
        ("PROVISIONING", "STAGING", "RUNNING", "STOPPING", "SUSPENDING", "REPAIRING"),
        PowerState.RUNNING,
    ),
}


@dataclass(frozen=True, slots=True)
class Machine:
    """An instance; `networks` are its interfaces' paths, `tags` its network tags."""

    ref: InstanceRef
    type: str
    power: PowerState
    addresses: tuple[NodeAddress, ...]
    networks: tuple[str, ...]
    tags: frozenset[str]
    hostname: str = ""

    def __str__(self) -> str:
        return f"{self.ref.zone}/{self.ref.name}"

    @property
    def instance(self) -> Instance:
        """What it is as a Node's machine."""
        return Instance(
            self.ref.provider_id,
            self.type,
            self.ref.zone,
            ids.region_of(self.ref.zone),
            self.addresses,
            power=self.power,
            names=tuple(filter(None, (self.ref.name, self.hostname))),
        )


@dataclass(slots=True)
class Machines(Listing[InstanceRef, Machine]):
    """Instances by where they are and by name. `failures` are of zones that could not be read."""

    zones: frozenset[str] = frozenset()
    failures: Mapping[str, str] = field(default_factory=dict)
    by_name: dict[str, list[Machine]] = field(default_factory=dict)


class GceInstances(MachineLookup[Machines, Machine]):
    """Looks Nodes up by provider ID, or by name in all zones of the cluster's region."""

    provider_ids, batch_size, noun = ids.PROVIDER_IDS, BATCH, "instance"
    mark_kinds = "network", "tag"

    def __init__(self, api: GceApi, network: str) -> None:
        self._api = api
        self.required_marks = frozenset([f"network:{network}"] if network else ())

    def machine_of(self, provider_id: str) -> str:
        ref = ids.instance_of(provider_id)
        return ref.path if ref else ""

    async def read(self, nodes: Sequence[Node]) -> Machines:
        """One call for 500 instances, however many Nodes there are."""
        place = await self._api.place()
        listed = await self._api.aggregated("instances")
        zones = {last_part(scope) for scope in listed.records if scope.startswith("zones/")}
        failures = {last_part(scope): why for scope, why in listed.failures.items()}
        found = Machines(zones=frozenset(zones), failures=failures)
        for scope, records in listed.records.items():
            async for record in in_turns(records):
                ref = InstanceRef(place.project, last_part(scope), text(record.get("name")))
                machine = read_machine(ref, record)
                found.by_id[ref] = machine
                found.by_name.setdefault(ref.name, []).append(machine)
        return found

    async def find(self, node: Node, listing: Machines) -> Sequence[Machine] | Answer:
        """By name only where every zone could be read: a twin may be in the one that was not."""
        place = await self._api.place()
        if ref := ids.instance_of(node.provider_id):
            if ref.project != place.project:
                return Unknown(f"{ref.provider_id} is of another project than {place.project}")
            found = listing.by_id.get(ref)
            if not found and (why := listing.failures.get(ref.zone)):
                return Unknown(why)
            return [found] if found else []
        named = listing.by_name.get(node.name.partition(".")[0], [])
        here = [item for item in named if ids.region_of(item.ref.zone) == place.region]
        failures = [
            why for zone, why in listing.failures.items() if ids.region_of(zone) == place.region
        ]
        if len(here) < 2 and failures:
            return Unknown(failures[0])
        if named and not here:
            where = ", ".join(map(str, named))
            return Unknown(f"region {place.region} has no instance {node.name}; there is {where}")
        return here

    def marks(self, machine: Machine) -> Collection[str]:
        """A network by its name, and by its project and name.

        That of the first interface: a group of one network takes no machine with another's there,
        nor any that is added with it.
        """
        names = (path.split("/") for path in machine.networks[:1])
        networks = {
            f"network:{mark}" for name in names for mark in (name[-1], f"{name[1]}/{name[-1]}")
        }
        return networks | {f"tag:{tag}" for tag in machine.tags}

    async def instance(self, node: Node, machine: Machine, listing: Machines) -> Answer:
        if not machine.addresses:
            return Unknown(f"instance {machine} has no address yet")
        return machine.instance

    async def prove_gone(self, node: Node, listing: Machines) -> Answer:
        """By a request for the instance alone: that a list lacks its zone is not enough."""
        ref = ids.instance_of(node.provider_id)
        if ref is None:
            return Unknown(f"no zone has an instance {node.name.partition('.')[0]}")
        try:
            await self._api.get("instances.get", ref.path)
        except (NotFound, Refused) as error:
            if ref.zone not in listing.zones:
                why = f"project {ref.project} has no zone {ref.zone}"
                return Unknown(why, is_nowhere=True)
            if not isinstance(error, NotFound):
                raise
            return Gone(str(error))
        return Unknown(f"the list lacks {ref.provider_id}, which is there")


def read_machine(ref: InstanceRef, record: Json) -> Machine:
    """An instance of the API."""
    interfaces = objects(record.get("networkInterfaces"))[:MOST_INTERFACES]
    tags = mapping(record.get("tags")).get("items")
    return Machine(
        ref,
        last_part(text(record.get("machineType"))),
        POWER_STATES.get(text(record.get("status")), PowerState.UNKNOWN),
        tuple(address for interface in interfaces for address in _addresses(interface)),
        tuple(path_of_url(text(item.get("network")), ref.project) for item in interfaces),
        frozenset(map(text, tags)) if isinstance(tags, list) else frozenset(),
        text(record.get("hostname")),
    )


def _addresses(interface: Json) -> Iterator[NodeAddress]:
    """As upstream: IPv6 is internal whatever its kind. It writes an empty one without `natIP`."""
    configs = objects(interface.get("accessConfigs"))[:MOST_CONFIGS]
    external = [text(record.get("natIP")) for record in configs]
    v6 = text(interface.get("ipv6Address"))
    if not v6 and interface.get("ipv6AccessType") == "EXTERNAL":
        configs = objects(interface.get("ipv6AccessConfigs"))
        v6 = next((text(config.get("externalIpv6")) for config in reversed(configs)), "")
    kinds = [
        (AddressType.INTERNAL_IP, text(interface.get("networkIP"))),
        *((AddressType.EXTERNAL_IP, item) for item in external),
        (AddressType.INTERNAL_IP, v6),
    ]
    for kind, address in kinds:
        if read_address(address):
            yield NodeAddress(kind, address)
