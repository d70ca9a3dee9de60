"""What one vCenter has, as read in one go, and how sure we are that this is all of it.

A machine that is missing in it proves nothing by itself: a login sees only what it may, and a
property that was not read is not one that is empty.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from pyVmomi import vim, vmodl

from ccm.cloud.lookup import MAX_PAGES, MAX_PARTS, NOT_UNDERSTOOD, in_turns, verify_count
from ccm.cloud.newest import Newest
from ccm.errors import CloudError
from ccm.http import BodyTooLarge
from ccm.model.cloud import PowerState, swapped_uuid
from ccm.model.objects import text
from ccm.providers.vsphere import ids
from ccm.providers.vsphere.soap import NoSuchObject
from ccm.providers.vsphere.vcenter import Session, VCenterApi

PAGE = 1000  # objects; vCenter may give fewer, and a token for the rest
MAX_NAME = 1000  # characters; vCenter takes 80, and escapes some of them
MAX_HOST_NAME = 253  # characters; root in the guest can write any
MAX_METADATA = 16 << 10  # bytes; the same
MOST_PLACES = 100  # inside of each other; a circle of them has no end
PLACE_PROPERTIES = ("name", "parent")
METADATA = 'config.extraConfig["guestinfo.metadata"]'
METADATA_ENCODING = 'config.extraConfig["guestinfo.metadata.encoding"]'
MACHINE_PROPERTIES = (
    *PLACE_PROPERTIES,
    "parentVApp",
    "resourcePool",
    "config.uuid",
    "config.template",
    METADATA,
    METADATA_ENCODING,
    "summary.config.guestId",
    "summary.config.numCpu",
    "summary.config.memorySizeMB",
    "runtime.powerState",
    "runtime.connectionState",
    "runtime.host",
    "guest.hostName",
    "guest.net",
)
READ = ("System.View", "System.Read")
POWER_STATES = {
    "poweredOn": PowerState.RUNNING,
    "poweredOff": PowerState.STOPPED,
    "suspended": PowerState.STOPPED,
}


@dataclass(frozen=True, slots=True)
class Nic:
    """A network card as VMware Tools see it in the guest; `device` is -1 for a bridge or tunnel."""

    network: str
    addresses: tuple[str, ...]
    device: int


@dataclass(frozen=True, slots=True)
class Place:
    """What machines are in: a host, a cluster, a pool, a folder, a datacenter."""

    kind: str
    moid: str
    name: str
    parent: str


@dataclass(frozen=True, slots=True)
class Machine:
    """A virtual machine. `unread` names the properties that it has and that could not be read."""

    moid: str
    name: str
    uuid: str
    properties: Mapping[str, Any]
    unread: tuple[str, ...] = ()

    @property
    def hostname(self) -> str:
        """What the guest calls itself; each of its parts is a name that its Node may have."""
        written = text(self.properties.get("guest.hostName"))
        return written if len(written) <= MAX_HOST_NAME else ""

    @property
    def is_template(self) -> bool:
        return self.properties.get("config.template") is True

    @property
    def power(self) -> PowerState:
        """Unknown where the host does not answer or has lost its files."""
        if str(self.properties.get("runtime.connectionState", "connected")) != "connected":
            return PowerState.UNKNOWN
        state = str(self.properties.get("runtime.powerState", ""))
        return POWER_STATES.get(state, PowerState.UNKNOWN)

    @property
    def nics(self) -> list[Nic]:
        return [
            Nic(text(nic.network), tuple(nic.ipAddress or ()), int(nic.deviceConfigId))
            for nic in (self.properties.get("guest.net") or ())[:MAX_PARTS]
        ]

    @property
    def metadata(self) -> tuple[str, str]:
        """`guestinfo.metadata` and its encoding."""
        found = (self.properties.get(key) for key in (METADATA, METADATA_ENCODING))
        value, encoding = (text(getattr(item, "value", item)) for item in found)
        return value, encoding

    def parent_of(self, *names: str) -> str:
        """The ID of the first of these that it has."""
        return next((moid for name in names if (moid := text(self.properties.get(name)))), "")

    def guest_names(self) -> Iterator[str]:
        """What its Node may be called, in small letters: its guest, with its domain or without."""
        parts = self.hostname.lower().split(".")
        for count in range(1, len(parts) + 1):
            yield ".".join(parts[:count])


@dataclass(slots=True)
class Inventory:
    """All machines and places of a vCenter, and why a machine may be missing in it."""

    vcenter: str
    machines: dict[str, Machine] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    incomplete_reasons: list[str] = field(default_factory=list)
    datacenters: list[Place] = field(default_factory=list)
    """Those of the configuration, or else all."""
    _ours: set[str] = field(init=False)
    _by_uuid: dict[str, list[Machine]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ours = {item.moid for item in self.datacenters}

    def add(self, machine: Machine) -> None:
        self.machines[machine.moid] = machine
        if not machine.is_template:
            self._by_uuid.setdefault(machine.uuid, []).append(machine)

    def take(self, datacenters: Iterable[Place]) -> None:
        """Have these among the configuration's."""
        self.datacenters += datacenters
        self._ours.update(item.moid for item in self.datacenters)

    def with_uuid(self, uuid: str) -> Sequence[Machine]:
        """The machines with this BIOS UUID, templates left out."""
        return self._by_uuid.get(uuid, ())

    def is_ours(self, machine: Machine) -> bool:
        """Whether it is in one of `datacenters`."""
        return self.datacenter_of(machine) in self._ours

    def chain(self, moid: str) -> Iterator[Place]:
        """A place and those that it is in, from the inside out."""
        for _ in range(MOST_PLACES):
            if not (place := self.places.get(moid)):
                return
            yield place
            moid = place.parent

    def datacenter_of(self, machine: Machine) -> str:
        """The ID of its datacenter; empty when it is not known."""
        for start in machine_parents(machine):
            for place in self.chain(start):
                if place.kind == "Datacenter":
                    return place.moid
        return ""

    def path_of(self, place: Place) -> str:
        """Its path in the inventory, as `/folder/DC0`; the root has no name there."""
        names = [unquote(item.name) for item in self.chain(place.moid) if item.parent]
        return "/" + "/".join(reversed(names))


def machine_parents(machine: Machine) -> tuple[str, str, str]:
    """Where the search for what a machine is in begins: host, pool, folder."""
    return (
        machine.parent_of("runtime.host"),
        machine.parent_of("resourcePool"),
        machine.parent_of("parent", "parentVApp"),
    )


class InventoryReader:
    """Reads one vCenter. UUIDs are remembered, as a host that lost its storage reports none."""

    def __init__(self, api: VCenterApi) -> None:
        self.api, self.name = api, api.name
        self._uuids: dict[str, str] = {}  # by managed object, for machines that are there
        self._cached = Newest[str, str]()  # managed objects of Nodes, by UUID
        self._pages = 1  # in which a `PAGE` of objects is read

    async def read(self) -> Inventory:
        """Everything that the login may see, in one call and one more for each further page.

        Guests write a part of it: pages that are too large halve until they fit. The next read
        begins with larger ones, whatever became of this one.
        """
        self._pages = max(self._pages // 2, 1)
        while True:
            try:
                inventory = await self._understood(await self._objects())
            except NOT_UNDERSTOOD as error:
                what = f"{self.name}: ListInventory: the answer is not understood"
                raise CloudError(f"{what}: {type(error).__name__}: {error}") from error
            except CloudError as error:
                if self._pages >= PAGE or not isinstance(error.__cause__, BodyTooLarge):
                    raise
                self._pages *= 2
                continue
            return inventory

    async def _objects(self) -> list[Any]:
        try:
            return await self.api.in_session(self._retrieve)
        except NoSuchObject:  # something ended while it was being read
            return await self.api.in_session(self._retrieve)

    def remember(self, machine: Machine) -> None:
        """This one is a Node's: when it is missed, its managed object is looked for as well."""
        self._cached[machine.uuid] = machine.moid

    async def why_kept(self, uuid: str) -> str:
        """Why a machine that is not listed may be there all the same; empty when it is gone.

        vCenter's index and, if it was ever seen, its managed object have to say so as well, to a
        login that may see everything.
        """
        return await self.api.in_session(lambda session: self._look_again(session, uuid))

    async def missing_permissions(self, inventory: Inventory) -> list[str]:
        """What the login may not read of where our machines can be."""
        wanted = inventory.datacenters if self.api.vcenter.datacenters else []
        try:
            return await self.api.in_session(lambda session: self._lacking(session, wanted))
        except CloudError as error:
            return [str(error)]

    # Reads

    async def _retrieve(self, session: Session) -> list[Any]:
        """All objects, from all pages; never some of them."""
        collector = self.api.content.propertyCollector
        spec = _everything(session.view, self.api.content.rootFolder)
        size = max(PAGE // self._pages, 1)
        options = vmodl.query.PropertyCollector.RetrieveOptions(maxObjects=size)
        call = self.api.call
        answer = await call(session, collector, "RetrievePropertiesEx", [spec], options)
        objects = list[Any]()
        for _ in range(MAX_PAGES):
            if answer is None:
                raise CloudError(f"{self.name}: ListInventory: the answer has nothing in it")
            objects += answer.objects
            verify_count(f"{self.name}: ListInventory", len(objects))
            _forget_long_metadata(answer.objects)
            if not answer.token:
                return objects
            call_next = (collector, "ContinueRetrievePropertiesEx", answer.token)
            answer = await call(session, *call_next)
        raise CloudError(f"{self.name}: ListInventory: more than {MAX_PAGES} pages")

    async def _look_again(self, session: Session, uuid: str) -> str:
        content, call = self.api.content, self.api.call
        for written in dict.fromkeys((uuid, swapped_uuid(uuid))):
            find = (content.searchIndex, "FindAllByUuid", None, written, True, False)
            if found := await call(session, *find):
                return f"{self.name} has {found[0]._moId} with UUID {written}, and does not list it"
        if moid := self._cached.get(uuid):
            kind = vim.VirtualMachine
            spec = vmodl.query.PropertyCollector.FilterSpec(
                objectSet=[
                    vmodl.query.PropertyCollector.ObjectSpec(obj=self.api.reference(kind, moid))
                ],
                propSet=[vmodl.query.PropertyCollector.PropertySpec(type=kind, pathSet=["name"])],
            )
            options = vmodl.query.PropertyCollector.RetrieveOptions()
            collector = content.propertyCollector
            try:
                await call(session, collector, "RetrievePropertiesEx", [spec], options)
            except NoSuchObject:
                self._cached.pop(uuid, None)  # another batch may have asked as well
            else:
                return f"{self.name} has {moid}, which had UUID {uuid}, and does not list it"
        return ""

    async def _lacking(self, session: Session, wanted: Sequence[Place]) -> list[str]:
        content = self.api.content
        entities = [self.api.reference(vim.Datacenter, item.moid) for item in wanted]
        asked = (entities or [content.rootFolder], session.key, list(READ))
        call = (content.authorizationManager, "HasPrivilegeOnEntities", *asked)
        granted = await self.api.call(session, *call)
        names = {item.moid: f"datacenter {item.name}" for item in wanted}
        found = list[str]()
        for entity in granted or ():
            where = names.get(entity.entity._moId, "the root folder, propagated")
            rights = [item.privId for item in entity.privAvailability if item.isGranted]
            lacking = [right for right in READ if right not in rights]
            found += [f"{self.name}: {right} on {where}" for right in lacking]
        if len(granted or ()) != max(len(entities), 1):
            found.append(f"{self.name}: GetPrivileges: the answer leaves something out")
        return found

    # What was read

    async def _understood(self, objects: Iterable[Any]) -> Inventory:
        inventory, uuids = Inventory(self.name), dict[str, str]()
        async for content in in_turns(objects):
            properties = {item.name: plain(item.val) for item in content.propSet}
            unread = tuple(item.path for item in content.missingSet)
            moid, kind = content.obj._moId, type(content.obj).__name__.rpartition(".")[2]
            name = text(properties.get("name"))[:MAX_NAME]
            if not isinstance(content.obj, vim.VirtualMachine):
                parent = text(properties.get("parent"))
                inventory.places[moid] = Place(kind, moid, name, parent)
                if unread:
                    inventory.incomplete_reasons.append(
                        f"{self.name}: {kind} {name or moid} cannot be read"
                    )
                continue
            uuid = ids.read_uuid(text(properties.get("config.uuid"))) or self._uuids.get(moid, "")
            machine = Machine(moid, unquote(name), uuid, properties, unread)
            if uuid:
                uuids[moid] = uuid
            else:
                inventory.incomplete_reasons.append(
                    f"{self.name}: machine {name or moid} has no UUID"
                )
            inventory.add(machine)
        self._uuids = uuids
        await self._find_datacenters(inventory)
        return inventory

    async def _find_datacenters(self, inventory: Inventory) -> None:
        """By name, by path, or as `Datacenter:datacenter-3`; without one it is incomplete."""
        places = [place for place in inventory.places.values() if place.kind == "Datacenter"]
        wanted = self.api.vcenter.datacenters
        inventory.take([] if wanted else places)
        for written in wanted:
            name = unquote(written)
            found = [
                place
                async for place in in_turns(places)
                if name in (unquote(place.name), f"Datacenter:{place.moid}")
                or f"/{name.strip('/')}" == inventory.path_of(place)
            ]
            inventory.take(found)
            if not found:
                why = f"{self.name}: datacenter {written} is not there, or may not be seen"
                inventory.incomplete_reasons.append(why)
        if not inventory.datacenters and not wanted:
            inventory.incomplete_reasons.append(
                f"{self.name} has no datacenter, or none that may be seen"
            )


def _forget_long_metadata(objects: Iterable[Any]) -> None:
    """What no one reads takes no memory until all pages are there."""
    for item in (item for content in objects for item in content.propSet):
        if item.name == METADATA and len(text(getattr(item.val, "value", ""))) > MAX_METADATA:
            item.val.value = ""


def plain(value: Any) -> Any:
    """A reference to a managed object as its ID, anything else as it is."""
    return value._moId if isinstance(value, vim.ManagedEntity) else value


def _everything(view: Any, root: Any) -> Any:
    """What is in the view, and the root folder, which is in none."""
    query = vmodl.query.PropertyCollector
    through = query.TraversalSpec(name="view", type=vim.view.ContainerView, path="view", skip=False)
    places = query.PropertySpec(type=vim.ManagedEntity, pathSet=list(PLACE_PROPERTIES))
    machines = query.PropertySpec(type=vim.VirtualMachine, pathSet=list(MACHINE_PROPERTIES))
    return query.FilterSpec(
        objectSet=[
            query.ObjectSpec(obj=view, skip=True, selectSet=[through]),
            query.ObjectSpec(obj=root),
        ],
        propSet=[places, machines],
    )
