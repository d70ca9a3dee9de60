"""Which instances are behind balancers: those of Nodes that run in the balancers' own network."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from itertools import chain

from ccm.cloud.machines import join_reasons, verify_any, verify_complete
from ccm.cloud.shared_read import KeptRead, SharedRead
from ccm.http import path_of
from ccm.model.cloud import Network, read_network
from ccm.model.objects import Json, Node, text
from ccm.providers.incus import ids
from ccm.providers.incus.api import IncusApi
from ccm.providers.incus.config import FORWARD, BalancerSection
from ccm.providers.incus.inventory import (
    InstanceList,
    Inventory,
    ListedInstance,
    Nic,
    candidates_of,
    instance_of,
)
from ccm.providers.incus.lb.plan import Backend, backends_of
from ccm.providers.incus.lb.request import family_of

DEFAULT = "default"  # the project that has the networks of those without any of their own


@dataclass(frozen=True, slots=True)
class Candidates:
    """Backends of all IP families, and warnings about Nodes that are left out.

    `unclear` names instances that run and of which no address is known, and those of which several
    are one Node. `lacking` is why instances of Nodes may be missing: all but those that are `known`
    may be theirs.
    """

    backends: Sequence[Backend] = ()
    warnings: Sequence[str] = ()
    unclear: Collection[str] = ()
    lacking: str = ""
    known: Collection[str] = ()

    def of_family(self, family: str, current: Json | None = None) -> list[Backend]:
        """One for each instance, by its first address; what is not known stays as in `current`."""
        kept = [
            backend
            for backend in backends_of(current or {})
            if backend.instance in self.unclear
            or (self.lacking and backend.instance not in self.known)
        ]
        found: dict[str, Backend] = {}
        for backend in (*self.backends, *kept):
            if family_of(backend.address) == family:
                found.setdefault(backend.instance, backend)
        return sorted(found.values())


class BackendReader:
    """Reads the instances of Nodes, once for all who ask."""

    def __init__(self, api: IncusApi, inventory: Inventory, section: BalancerSection) -> None:
        self._api, self._inventory, self._section = api, inventory, section
        self._list = SharedRead(self._read_all)
        self._subnets: Sequence[Network] = ()
        self._owners: dict[str, KeptRead[str]] = {}  # of networks, by project of instances

    async def read(self, nodes: Sequence[Node]) -> Candidates:
        """Raises where no instance is known, as all may only be unreadable."""
        if not nodes:
            return Candidates()
        listed = await self._list()
        found = {node.name: instance_of(node, listed) for node in nodes}
        lost = [
            node
            for node in nodes
            if ids.PROVIDER_IDS.fullmatch(node.provider_id) and not found[node.name]
        ]
        current = [item for item in found.values() if item]
        reasons = listed.incomplete_reasons if lost else []
        if not current:
            verify_complete(reasons, "which instances there are")
        shared = {item for item in {each.project for each in current} if await self._shares(item)}
        nics = [(item, self._nics(item) if item.project in shared else []) for item in current]
        running = [item for item in nics if not item[0].is_stopped]  # OVN refuses others
        addresses = {self._name(item): self._addresses(item, own) for item, own in running}
        backends = [Backend(name, each) for name, some in addresses.items() for each in some]
        verify_any(len(running), len(backends), "instances' addresses")
        may_have_some = {self._name(item) for item, own in running if own or not item.nics("")}
        twins = {self._name(item) for node in lost for item in candidates_of(node, listed)}
        all_named = chain.from_iterable(listed.by_name.values())
        return Candidates(
            backends,
            [
                *_reported(
                    (node.name for node in lost),
                    f"have no instance of their own in {self._api.name or 'Incus'}",
                ),
                *_reported(
                    (item.name for item, own in nics if not own),
                    f"are not in network {self._section.network}",
                    "instances",
                ),
            ],
            twins | {name for name in may_have_some if not addresses[name]},
            join_reasons(reasons),
            {self._name(item) for item in all_named if item.is_readable} if reasons else (),
        )

    async def _read_all(self) -> InstanceList:
        """Without their states, which take most of the time; a bridge knows no addresses itself."""
        if self._section.mode != FORWARD:
            return await self._inventory.read(recursion=1)
        path = path_of("networks", self._section.network)
        name, project = self._section.network, self._section.project
        config = await self._api.get_config("GetNetwork", path, name, project=project)
        found = [read_network(text(config.get(f"{item}.address"))) for item in ("ipv4", "ipv6")]
        self._subnets = [item for item in found if item]
        return await self._inventory.read(recursion=2)

    async def _shares(self, project: str) -> bool:
        """Whether what a project's instances call by the network's name is the very network."""
        own = self._section.project
        return project == own or await self._owner(project) == await self._owner(own)

    async def _owner(self, project: str) -> str:
        """The project that has the networks which a project's instances are in."""
        if project == DEFAULT:
            return DEFAULT
        if project not in self._owners:
            self._owners[project] = KeptRead(partial(self._read_owner, project))
        return await self._owners[project]()

    async def _read_owner(self, project: str) -> str:
        config = await self._api.get_config("GetProject", path_of("projects", project), project)
        return project if config.get("features.networks") == "true" else DEFAULT

    def _name(self, instance: ListedInstance) -> str:
        """Names of instances are one project's; none has an underscore."""
        own = self._section.project
        return instance.name if instance.project == own else f"{instance.project}_{instance.name}"

    def _nics(self, instance: ListedInstance) -> list[Nic]:
        network = self._section.network
        return [item for item in instance.nics(network) if item.network == network]

    def _addresses(self, instance: ListedInstance, nics: Sequence[Nic]) -> list[str]:
        """Those first that the guest cannot change."""
        given = [item for nic in nics for item in instance.given_to(nic)]
        if self._section.mode != FORWARD or not nics:
            return given
        found = [*given, *instance.guest_addresses(self._section.network)]
        return [item for item in found if any(ip_address(item) in net for net in self._subnets)]


def _reported(names: Iterable[str], why: str, noun: str = "nodes") -> list[str]:
    listed = ", ".join(sorted(names))
    return [f"{noun} {listed} {why}"] if listed else []
