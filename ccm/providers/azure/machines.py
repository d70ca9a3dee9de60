"""Virtual machines and those of scale sets as Resource Manager lists them, with their interfaces.

A list of machines has no power states: those are in a list of their own, of the subscription.
"""

import time
from collections import defaultdict
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TypeVar

from ccm.cloud.lookup import (
    MAX_PARTS,
    MAX_READS,
    batches,
    in_turns,
    read_each,
    together,
    verify_count,
)
from ccm.cloud.machines import Listing
from ccm.errors import CloudError, Denied, NotFound
from ccm.model.cloud import PowerState
from ccm.model.objects import Json, mapping, objects, text
from ccm.providers.azure.api import AzureApi
from ccm.providers.azure.config import FLEXIBLE, SCALE_SETS, STANDARD, AzureConfig
from ccm.providers.azure.ids import (
    COMPUTE,
    NETWORK,
    Scope,
    id_of,
    key_of,
    name_of,
    properties_of,
    same,
    scope_of,
)

OFF = ("stopped", "deallocated", "deallocating")
"""Power states without a running guest; one that is stopping still has it (upstream's rule)."""
POWER = "PowerState/"
VIEW = {"$expand": "instanceView"}
STATES = "/"  # among groups, none of which is called so
ALL_GROUPS = ""
IN_SET = "/virtualmachinescalesets/"  # in keys of machines of a uniform one, and of what is theirs
MOST_GROUPS = 11  # that are read one by one, as Nodes may name any
SINGLE_KEPT = 15.0  # seconds; Azure takes 12 reads of one machine a minute, and all wait for more

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Machine:
    """A record of a machine, or of one in a scale set."""

    record: Json = field(repr=False)
    view: Json | None = field(repr=False)  # what it is at; None where that is not known
    interfaces: Mapping[str, Json] = field(default_factory=dict, repr=False)  # by ID, of all

    @property
    def id(self) -> str:
        return id_of(self.record)

    @property
    def key(self) -> str:
        return key_of(self.record)

    @property
    def properties(self) -> Json:
        return properties_of(self.record)

    @property
    def is_of_uniform_set(self) -> bool:
        return IN_SET in self.key

    @property
    def vm_set(self) -> str:
        """The name of its scale set or of its availability set; empty where it has none."""
        if self.is_of_uniform_set:
            return self.key.split("/")[-3]
        found = self.properties.get("virtualMachineScaleSet")
        return name_of(id_of(found or self.properties.get("availabilitySet")))

    @property
    def names(self) -> tuple[str, ...]:
        """What its Node may be called: the host's name, and a single machine's own."""
        host = text(mapping(self.properties.get("osProfile")).get("computerName"))
        own = "" if self.is_of_uniform_set else text(self.record.get("name"))
        return tuple(dict.fromkeys(item.lower() for item in (host, own) if item))

    @property
    def type(self) -> str:
        profile, sku = mapping(self.properties.get("hardwareProfile")), self.record.get("sku")
        return text(mapping(sku).get("name")) or text(profile.get("vmSize"))

    @property
    def region(self) -> str:
        """Its location, which people may write as `West Europe`."""
        return text(self.record.get("location")).replace(" ", "").lower()

    @property
    def zone(self) -> str | None:
        """`<region>-<zone>`, without zones the fault domain, so that Nodes spread; None if unknown.

        As upstream, which takes 0 where a machine is in no fault domain either.
        """
        zones = self.record.get("zones")
        if isinstance(zones, list) and zones:
            return f"{self.region}-{zones[0]}"
        if self.view is None:
            return None
        domain = self.view.get("platformFaultDomain")
        return str(domain) if isinstance(domain, int) else "0"

    @property
    def power(self) -> PowerState:
        """Off only when nothing is under way: upstream's rule."""
        codes = [text(record.get("code")) for record in objects(mapping(self.view).get("statuses"))]
        found = [code.removeprefix(POWER).lower() for code in codes if code.startswith(POWER)]
        if not found:
            return PowerState.UNKNOWN
        is_settled = same(text(self.properties.get("provisioningState")), "Succeeded")
        return PowerState.STOPPED if is_settled and found[0] in OFF else PowerState.RUNNING

    @property
    def interface(self) -> Json:
        """Its primary interface; empty where it is not listed."""
        return self.interfaces.get(self.interface_id.lower(), {})

    @property
    def interface_id(self) -> str:
        """The ID of its primary interface."""
        profile = mapping(self.properties.get("networkProfile"))
        listed = objects(profile.get("networkInterfaces"))[:MAX_PARTS]
        primary = [item for item in listed if properties_of(item).get("primary") is True]
        return id_of((primary or listed or [{}])[0])

    @property
    def configurations(self) -> list[Json]:
        """What its primary interface's IP configurations are like, the primary one first."""
        listed = objects(properties_of(self.interface).get("ipConfigurations"))[:MAX_PARTS]
        found = [properties_of(item) for item in listed]
        return sorted(found, key=lambda item: item.get("primary") is not True)

    @property
    def private(self) -> list[str]:
        """Its private address of each family."""
        return first_of_each_family(
            text(configuration.get("privateIPAddress")) for configuration in self.configurations
        )

    @property
    def public_ids(self) -> list[str]:
        """The IDs of its public addresses."""
        return [
            found
            for configuration in self.configurations
            if (found := id_of(configuration.get("publicIPAddress")))
        ]

    @property
    def networks(self) -> set[str]:
        """The IDs of the virtual networks that it is in, lower case."""
        subnets = {key_of(configuration.get("subnet")) for configuration in self.configurations}
        return {subnet.rpartition("/subnets/")[0] for subnet in subnets} - {""}

    def __str__(self) -> str:
        return self.id


@dataclass(slots=True)
class Machines(Listing[str, Machine]):
    """Machines by ID in lower case, by the names of their Nodes, and what they are joined to."""

    by_name: dict[str, list[Machine]] = field(default_factory=lambda: defaultdict(list))
    public: dict[str, str] = field(default_factory=dict)  # addresses by ID
    unread: dict[str, CloudError] = field(default_factory=dict)  # by group or machine, why not
    unread_public: dict[str, CloudError] = field(default_factory=dict)  # by list, why not
    interfaces: list[Json] = field(default_factory=list)  # also of machines that are gone

    def why_unread(self, machine_id: str) -> CloudError | None:
        """Why nothing is known of a machine, or of its group."""
        scope = scope_of(machine_id)
        return self.unread.get(machine_id) or (self.unread.get(scope.group) if scope else None)

    def why_no_public(self, machine: Machine) -> CloudError | None:
        """Why the public addresses of a machine are not known; raises where one has an odd ID."""
        for public_id in machine.public_ids:
            if error := self.unread_public.get(_list_of(public_id)):
                return error
        return None

    def add(self, machines: Iterable[Machine]) -> None:
        for machine in machines:
            self.by_id[machine.key] = machine
            for name in machine.names:
                self.by_name[name].append(machine)


class MachineReader:
    """Lists what is in resource groups; which kinds of machines there are the file says."""

    def __init__(self, api: AzureApi, config: AzureConfig) -> None:
        self._api, self._config = api, config
        is_sets = config.vm_type == SCALE_SETS
        self._has_sets = is_sets
        self._has_single = (
            config.vm_type in (STANDARD, FLEXIBLE)
            or not config.disable_availability_set_nodes
            or config.enable_vmss_flex_nodes
        )
        self.lacks_states = False  # whether the list of power states is denied
        self._singles = dict[str, tuple[float, Sequence[list[Json]]]]()  # by ID, until when

    async def read(self, asked: Sequence[str], *, has_states: bool = True) -> Machines:
        """All machines of these groups, or machines by ID; what cannot be read is noted as such.

        Where groups are many, the subscription's lists are read; without the right to them the
        first ones are read one by one. Without states, zones and power are not known. Raises
        `CloudError` when none can be read.
        """
        scopes = ((item, scope_of(item)) for item in asked)
        groups = [*dict.fromkeys(scope.group if scope else item for item, scope in scopes)]
        if len(groups) <= MOST_GROUPS:
            return await self._read(asked, groups, has_states)
        try:
            return await self._read([ALL_GROUPS], groups, has_states)
        except Denied as error:
            found = await self._read(asked[:MOST_GROUPS], groups, has_states)
            found.unread |= dict.fromkeys(asked[MOST_GROUPS:], error)
            return found

    async def _read(
        self, asked: Sequence[str], groups: Collection[str], has_states: bool
    ) -> Machines:
        """What single machines, and the lists of groups, or that of all, have of these groups."""
        found = Machines()
        reads: dict[str, Awaitable[Sequence[list[Json]]]]
        reads = {
            item: self._kept_single(item) if scope_of(item) else self._group(item, groups)
            for item in asked
        }
        results = await read_each({**reads, STATES: self._states(has_states)})
        states = results.pop(STATES)
        if isinstance(states, CloudError):
            raise states
        views = {key_of(state): _own_view(state) for state in states[0]}
        for group, result in results.items():
            if isinstance(result, CloudError) and group == ALL_GROUPS:
                raise result
            if isinstance(result, CloudError):
                found.unread[group] = result
                continue
            singles, members, listed = result
            found.interfaces += listed
            interfaces = {key_of(item): item for item in listed}
            found.add(Machine(item, views.get(key_of(item)), interfaces) for item in singles)
            found.add(Machine(member, _own_view(member), interfaces) for member in members)
        return found

    async def get(self, machine_id: str) -> Machine:
        """One machine; raises `NotFound`."""
        record = await self._api.get("GetVirtualMachine", machine_id, **VIEW)
        if key_of(record) != machine_id.lower():
            raise CloudError(f"GetVirtualMachine: the answer is not about {machine_id}")
        return Machine(record, _own_view(record))

    async def read_public(self, listing: Machines, machines: Iterable[Machine]) -> None:
        """Read the public addresses of some machines, a list for each place where they are.

        What cannot be read is noted as such: only the machines that have an address there need it.
        """
        lists = set[str]()
        for public_id in (found for machine in machines for found in machine.public_ids):
            with suppress(CloudError):
                lists.add(_list_of(public_id))
        for path in sorted(lists):
            try:
                records = await self._api.list("ListPublicAddresses", path)
            except CloudError as error:
                listing.unread_public[path] = error
                continue
            for record in records:
                address = text(properties_of(record).get("ipAddress"))
                listing.public[key_of(record)] = address

    async def _group(self, group: str, groups: Collection[str]) -> Sequence[list[Json]]:
        """Single machines, those of scale sets, and the interfaces of both, of these groups."""
        scope = Scope(self._config.subscription_id, group)
        reads = await together(
            self._interfaces(group),
            self._api.list("ListVirtualMachines", scope.machines())
            if self._has_single
            else _nothing(),
            self._sets(scope) if self._has_sets else _nothing(),
        )
        interfaces, singles, sets = [await _of_groups(items, groups) for items in reads]
        members = list[Json]()
        for batch in batches(sets, MAX_READS):  # each waits for grants: all at once are a flood
            for some, more in await together(*(self._members(id_of(item)) for item in batch)):
                members += some
                interfaces += more
                verify_count("ListScaleSetMachines", len(members) + len(interfaces))
        return singles, members, interfaces

    async def _kept_single(self, machine_id: str) -> Sequence[list[Json]]:
        now = time.monotonic()
        self._singles = {key: known for key, known in self._singles.items() if known[0] > now}
        if machine_id not in self._singles:
            self._singles[machine_id] = now + SINGLE_KEPT, await self._single(machine_id)
        return self._singles[machine_id][1]

    async def _single(self, machine_id: str) -> Sequence[list[Json]]:
        """A machine with its own view, and its primary interface; none where it is missing."""
        try:
            machine = await self.get(machine_id)
            if not scope_of(machine.interface_id):
                return [], [machine.record], []
            interface = await self._api.get("GetInterface", machine.interface_id)
        except NotFound:
            return [], [], []
        return [], [machine.record], [interface]

    async def _interfaces(self, group: str) -> list[Json]:
        scope = Scope(self._config.network_subscription, group)
        return await self._api.list("ListInterfaces", scope.id(NETWORK, "networkInterfaces"))

    async def _sets(self, scope: Scope) -> list[Json]:
        """The uniform ones: machines of a flexible set are listed as single ones."""
        listed = await self._api.list("ListScaleSets", scope.id(COMPUTE, "virtualMachineScaleSets"))
        return [
            item
            for item in listed
            if not same(text(properties_of(item).get("orchestrationMode")), "Flexible")
        ]

    async def _members(self, set_id: str) -> Sequence[list[Json]]:
        """Machines and interfaces of a set, none of one that has just been deleted."""
        try:
            return await together(
                self._api.list("ListScaleSetMachines", f"{set_id}/virtualMachines", **VIEW),
                self._api.list("ListScaleSetInterfaces", f"{set_id}/networkInterfaces"),
            )
        except NotFound:
            return [], []

    async def _states(self, is_asked: bool) -> Sequence[list[Json]]:
        """What single machines are at; without the right to it nothing is known of any."""
        if not (is_asked and self._has_single):
            return [[]]
        path = f"/subscriptions/{self._config.subscription_id}/providers/{COMPUTE}/virtualMachines"
        try:
            states = await self._api.list("ListPowerStates", path, statusOnly="true")
        except Denied:
            self.lacks_states = True
            return [[]]
        self.lacks_states = False
        return [states]


async def _of_groups(records: Iterable[Json], groups: Collection[str]) -> list[Json]:
    return [
        record
        async for record in in_turns(records)
        if (scope := scope_of(id_of(record))) and scope.group in groups
    ]


def _own_view(record: Json) -> Json | None:
    view = properties_of(record).get("instanceView")
    return view if isinstance(view, dict) else None


def _list_of(resource_id: str) -> str:
    """The list that has a public address: of a group, or of a scale set."""
    set_id, is_sets, _ = resource_id.lower().partition("/virtualmachines/")
    if is_sets:
        return f"{set_id}/publicIPAddresses"
    scope = scope_of(resource_id)
    if scope is None:
        raise CloudError(f"{name_of(resource_id)} is not the ID of a public address")
    return scope.id(NETWORK, "publicIPAddresses")


async def _nothing() -> list[Json]:
    """Nothing to list."""
    return []


def first_of_each_family(addresses: Iterable[str]) -> list[str]:
    """The first IPv4 and the first IPv6 address, in their order; what is no address is left out."""
    found = dict[int, str]()
    for item in filter(None, addresses):
        try:
            found.setdefault(ip_address(item).version, str(ip_address(item)))
        except ValueError:
            continue
    return [*found.values()]
