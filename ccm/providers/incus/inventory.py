"""The instances of all projects that are configured, and how sure we are that these are all.

An empty or shorter list proves nothing: newer versions answer so to a certificate without rights,
every version for a project that does not exist; an instance on a member that does not answer is
listed without its UUID.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import chain, islice

from ccm.cloud.lookup import MAX_PARTS, MAX_READS, batches, read_each, together
from ccm.errors import CloudError, NotFound
from ccm.http import BodyTooLarge, path_of
from ccm.model.cloud import UUID, read_address
from ccm.model.objects import Json, Node, mapping, objects, text
from ccm.providers.incus import ids
from ccm.providers.incus.api import IncusApi

STOPPED, ERROR = 102, 112
NODE_KEY = "user.kubernetes-node"
"""In an instance's configuration: the name of its Node, when that is not the instance's."""
MAX_ADDRESSES = 100  # of one interface; root in the instance can make any number
MAX_SHOWN = 20 * MAX_PARTS  # of all interfaces with the MAC of a NIC, which it may give to any


@dataclass(frozen=True, slots=True)
class Nic:
    """A NIC of an instance; `hwaddr` is empty where Incus has not given it one yet."""

    device: str
    network: str
    hwaddr: str
    config: Json


@dataclass(frozen=True, slots=True)
class ListedInstance:
    """A record of Incus' list, and where it is from."""

    api: IncusApi
    project: str
    record: Json

    @property
    def name(self) -> str:
        return text(self.record.get("name"))

    def __str__(self) -> str:
        return f"{self.name} in {self.project}"

    @property
    def path(self) -> str:
        return path_of("instances", self.name)

    @property
    def config(self) -> Mapping[str, str]:
        return mapping(self.record.get("config"))

    @property
    def expanded_config(self) -> Mapping[str, str]:
        """With what the profiles say."""
        return mapping(self.record.get("expanded_config"))

    @property
    def uuid(self) -> str:
        """The same for as long as it lives, wherever it is; empty when it was never started."""
        uuid = text(self.config.get("volatile.uuid")).lower()
        return uuid if UUID.fullmatch(uuid) else ""

    @property
    def node_name(self) -> str:
        """The name of the Node that it may be, which a kubelet writes in small letters."""
        return (text(self.config.get(NODE_KEY)) or self.name).lower()

    @property
    def location(self) -> str:
        return text(self.record.get("location"))

    @property
    def is_readable(self) -> bool:
        """Whether the member it is on has answered."""
        is_known = isinstance(self.record.get("config"), dict)
        return is_known and self.record.get("status_code") != ERROR

    @property
    def is_stopped(self) -> bool:
        return self.record.get("status_code") == STOPPED

    def nics(self, network: str) -> list[Nic]:
        """Its NICs by the names of their devices, those in the network first."""
        found = list[Nic]()
        for device, raw in sorted(mapping(self.record.get("expanded_devices")).items()):
            config = dict(mapping(raw))
            if config.get("type") == "nic":
                where = text(config.get("network")) or text(config.get("parent"))
                hwaddr = config.get("hwaddr") or self.config.get(f"volatile.{device}.hwaddr")
                found.append(Nic(device, where, text(hwaddr).lower(), config))
        return sorted(found, key=lambda item: item.network != network)

    def addresses(self, network: str) -> list[str]:
        """Those in the guest; while it is off or has none, those that its networks gave it last."""
        found = self.guest_addresses(network)
        return found or [item for nic in self.nics(network) for item in self.given_to(nic)]

    def guest_addresses(self, network: str) -> list[str]:
        """What its NICs have in the guest, IPv4 before IPv6.

        Only interfaces with the MAC of a NIC count, which leaves out those of pods and of CNIs. An
        IPv4 address of its own beside one with a network is a virtual IP, which moves.
        """
        interfaces = mapping(mapping(self.record.get("state")).get("network")).values()
        by_hwaddr, found = defaultdict[str, list[Json]](list), list[str]()
        for interface in map(mapping, interfaces):
            listed = objects(interface.get("addresses"))[:MAX_ADDRESSES]
            by_hwaddr[text(interface.get("hwaddr")).lower()] += listed
        for hwaddr in dict.fromkeys(nic.hwaddr for nic in self.nics(network) if nic.hwaddr):
            own = [item for item in by_hwaddr[hwaddr] if item.get("scope") == "global"]
            for family in ("inet", "inet6"):
                some = [item for item in own if item.get("family") == family]
                if family == "inet" and any(item.get("netmask") != "32" for item in some):
                    some = [item for item in some if item.get("netmask") != "32"]
                found += [text(item.get("address")) for item in some]
        shown = islice(dict.fromkeys(found), MAX_SHOWN)
        return [item for item in shown if is_address(item)]

    def given_to(self, nic: Nic) -> list[str]:
        """What OVN has given a NIC, or its configuration says; the guest cannot change it."""
        written = text(self.config.get(f"volatile.{nic.device}.last_state.ip_addresses"))
        given = written.split(",", MAX_PARTS)[:MAX_PARTS]
        fixed = (text(nic.config.get(f"{family}.address")) for family in ("ipv4", "ipv6"))
        return [
            str(ip_address(item)) for item in dict.fromkeys((*given, *fixed)) if is_address(item)
        ]


def _by_key() -> dict[str, list[ListedInstance]]:
    return defaultdict(list)


@dataclass(slots=True)
class InstanceList:
    """What the lists of all projects have, and why something may be missing in them.

    `failures` are of lists that could not be read, `unreadable` of instances that are in a list
    without their configuration.
    """

    by_uuid: dict[str, list[ListedInstance]] = field(default_factory=_by_key)
    by_name: dict[str, list[ListedInstance]] = field(default_factory=_by_key)
    by_node: dict[str, list[ListedInstance]] = field(default_factory=_by_key)
    failures: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    @property
    def incomplete_reasons(self) -> list[str]:
        return [*self.failures, *self.unreadable]

    def __iter__(self) -> Iterator[ListedInstance]:
        """Those that have a UUID."""
        return chain.from_iterable(self.by_uuid.values())

    def of_uuid(self, node: Node) -> list[ListedInstance]:
        """Those with the UUID of its provider ID; while something may be missing, of its project
        alone: one elsewhere may be a copy.
        """
        found = self.by_uuid.get(ids.uuid_of(node.provider_id), [])
        return in_project_of(node, found) if self.incomplete_reasons else found

    def named(self, name: str, node: Node) -> list[ListedInstance]:
        """Those of a name that may be this Node: a kubelet may write the name of any."""
        return [item for item in self.by_name.get(name.lower(), []) if item.node_name == node.name]

    def add(self, instance: ListedInstance) -> None:
        self.by_name[instance.name.lower()].append(instance)
        if not instance.is_readable:
            where = f"on {instance.location}" if instance.location else "somewhere"
            self.unreadable.append(f"instance {instance.name} {where} cannot be read")
        if instance.uuid:
            self.by_uuid[instance.uuid].append(instance)
        if node := text(instance.config.get(NODE_KEY)):
            self.by_node[node.lower()].append(instance)


class Inventory:
    """Reads the instances of all projects, one request a project."""

    def __init__(self, apis: Sequence[IncusApi]) -> None:
        self._projects = [(api, project) for api in apis for project in api.projects]

    async def read(self, recursion: int, nodes: Sequence[Node] | None = None) -> InstanceList:
        """The instances, with their states if `recursion` is 2; raises when no list could be read.

        With `nodes` states may be of what these may be alone. What cannot be read of a project, or
        what says too little, is among the failures.
        """
        found = InstanceList()
        reads = {place: self._read(*place, recursion, nodes) for place in self._projects}
        for result in (await read_each(reads)).values():
            if isinstance(result, CloudError):
                found.failures.append(str(result))
            else:
                for instance in result:
                    found.add(instance)
        return found

    async def _read(
        self, api: IncusApi, project: str, recursion: int, nodes: Sequence[Node] | None = None
    ) -> list[ListedInstance]:
        query = {"project": project, "recursion": str(recursion)}
        try:
            listed = await api.get("ListInstances", "/instances", **query)
        except CloudError as error:
            if recursion < 2 or not isinstance(error.__cause__, BodyTooLarge):
                raise
            found = await self._read(api, project, recursion=1)
            for some in batches(found if nodes is None else _of_nodes(found, nodes), MAX_READS):
                await together(*map(self._read_state, some))
            return found
        if not isinstance(listed, list):
            raise CloudError("ListInstances: the answer is not a list")
        if not listed:
            await self._check_project(api, project)
        return [ListedInstance(api, project, record) for record in objects(listed)]

    async def _read_state(self, instance: ListedInstance) -> None:
        """The state of one by itself: root in it writes a part. One that is too large is left out.

        Without it an instance has the addresses that its networks gave it.
        """
        if instance.is_stopped or not instance.is_readable:
            return
        path, query = f"{instance.path}/state", {"project": instance.project}
        try:
            instance.record["state"] = await instance.api.get("GetInstanceState", path, **query)
        except CloudError as error:
            if not isinstance(error.__cause__, BodyTooLarge):
                raise

    async def incomplete_reasons(self) -> list[str]:
        """Why the lists of now may lack something although they were read."""
        checks = {place: self._check_project(*place) for place in self._projects}
        results = (await read_each(checks)).values()
        return [str(error) for error in results if isinstance(error, CloudError)]

    async def _check_project(self, api: IncusApi, project: str) -> None:
        """Raise unless the project is there for us."""
        try:
            await api.get_named("GetProject", path_of("projects", project), project)
        except NotFound as error:
            why = f"there is no project {project}: look into the configuration"
            raise CloudError(why) from error

    async def find_by_name(self, name: str) -> list[ListedInstance]:
        """The instances of one name, each project asked by itself; raises if one cannot say."""
        found = await together(*(self._get(api, project, name) for api, project in self._projects))
        return [item for item in found if item]

    async def _get(self, api: IncusApi, project: str, name: str) -> ListedInstance | None:
        try:
            record = await api.get("GetInstance", path_of("instances", name), project=project)
        except NotFound as error:
            if "nstance not found" not in str(error):  # but the project
                raise CloudError(str(error)) from error
            return None
        if not isinstance(record, dict) or record.get("name") != name:
            raise CloudError(f"GetInstance: the answer is not about {name}")
        return ListedInstance(api, project, record)


def _of_nodes(instances: Sequence[ListedInstance], nodes: Sequence[Node]) -> list[ListedInstance]:
    """Those that these Nodes may be, by UUID or by name."""
    uuids = {ids.uuid_of(node.provider_id) for node in nodes}
    names = {node.name for node in nodes}
    return [item for item in instances if item.uuid in uuids or item.node_name in names]


def candidates_of(node: Node, listed: InstanceList) -> list[ListedInstance]:
    """Those that a Node's provider ID may name: several projects may have one of the name."""
    if ids.uuid_of(node.provider_id):
        return listed.of_uuid(node)
    return listed.named(ids.name_of(node.provider_id), node)


def instance_of(node: Node, listed: InstanceList) -> ListedInstance | None:
    """The one readable instance that a Node's provider ID names, of several in its project."""
    found = candidates_of(node, listed)
    if ids.uuid_of(node.provider_id):
        found = in_project_of(node, found) if len(found) > 1 else found
        return found[0] if len(found) == 1 else None
    return found[0] if len(found) == 1 and found[0].is_readable else None


def in_project_of(node: Node, instances: Sequence[ListedInstance]) -> list[ListedInstance]:
    """Those of the project that a Node's provider ID names beside the UUID."""
    project = node.provider_id.split("/")[2]
    return [item for item in instances if item.project == project]


def is_address(value: str) -> bool:
    """Whether it is one that others may reach."""
    address = read_address(value)
    return address is not None and not (
        address.is_loopback or address.is_link_local or address.is_unspecified
    )
