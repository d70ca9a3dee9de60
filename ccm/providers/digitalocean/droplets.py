"""The droplets of the account: one list for all, and how sure we are that it is the cluster's.

A token of another team gets a list without ours, and 404 for each of them: neither proves anything
until the same token has seen something else of this cluster.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address

from ccm.cloud.json_api import verify_about
from ccm.cloud.lookup import MAX_PARTS, in_turns
from ccm.cloud.machines import Listing
from ccm.cloud.newest import Newest
from ccm.errors import CloudError, NotFound
from ccm.http import path_of
from ccm.model.cloud import AddressType, Instance, NodeAddress, PowerState
from ccm.model.objects import Json, mapping, objects, text
from ccm.providers.digitalocean import ids
from ccm.providers.digitalocean.api import DigitalOceanApi, Listed

POWER_STATES = {
    "new": PowerState.RUNNING,
    "active": PowerState.RUNNING,
    "off": PowerState.STOPPED,
    "archive": PowerState.STOPPED,
}


@dataclass(frozen=True, slots=True)
class Droplet:
    """A record of the API."""

    id: int
    name: str
    status: str
    size: str
    region: str
    vpc: str
    private: tuple[str, ...]
    public: tuple[str, ...]  # IPv4 before IPv6
    tags: frozenset[str] = frozenset()

    @property
    def addresses(self) -> tuple[NodeAddress, ...]:
        """As upstream: the first of each kind; none while it has none at all."""
        kinds = [(AddressType.INTERNAL_IP, item) for item in self.private[:1]]
        for version in (4, 6):
            of_it = [item for item in self.public if ip_address(item).version == version]
            kinds += [(AddressType.EXTERNAL_IP, item) for item in of_it[:1]]
        if not kinds:
            return ()
        return (
            NodeAddress(AddressType.HOSTNAME, self.name),
            *(NodeAddress(kind, item) for kind, item in kinds),
        )

    @property
    def has_ipv6(self) -> bool:
        return any(ip_address(item).version == 6 for item in self.public)

    def __str__(self) -> str:
        return str(self.id)

    def instance(self) -> Instance:
        """What it is as a Node's machine; DigitalOcean has no zones."""
        return Instance(
            provider_id=ids.provider_id(self.id),
            type=self.size,
            region=self.region,
            addresses=self.addresses,
            power=POWER_STATES.get(self.status, PowerState.UNKNOWN),
            names=(self.name, *self.private, *self.public),
        )


@dataclass(slots=True)
class DropletList(Listing[int, Droplet]):
    """Droplets by number, and by what their Nodes may be called."""

    _called: dict[str, dict[int, Droplet]] = field(default_factory=dict)

    async def add(self, listed: Listed) -> None:
        """Take in what the API lists."""
        self.incomplete_reasons += listed.incomplete_reasons
        async for record in in_turns(listed.records):
            if droplet := read_droplet(record):
                self.by_id[droplet.id] = droplet
                for name in (droplet.name.lower(), *droplet.private, *droplet.public):
                    self._called.setdefault(name, {})[droplet.id] = droplet
            else:
                why = "ListDroplets: a droplet in the answer is not understood"
                self.incomplete_reasons.append(why)

    def called(self, name: str) -> list[Droplet]:
        """Those of this name or address."""
        return [*self._called.get(name, {}).values()]


class Droplets:
    """Reads droplets, and remembers which are the cluster's: they are evidence that the token is of
    the cluster's team.
    """

    def __init__(self, api: DigitalOceanApi, vpc_id: str) -> None:
        self._api, self._vpc = api, vpc_id.lower()
        self._own = Newest[int, None]()

    async def list(self) -> DropletList:
        """All that the token may see but those with GPUs, ⌈n/200⌉ requests."""
        found = DropletList()
        await found.add(await self._api.list("ListDroplets", "/droplets", "droplets"))
        return found

    async def add_gpus(self, listing: DropletList) -> bool:
        """Add those with GPUs, which no other list has; whether there may be any."""
        gpus = await self._api.list("ListDroplets", "/droplets", "droplets", type="gpus")
        await listing.add(gpus)
        return bool(gpus.by_id or gpus.incomplete_reasons)

    async def get(self, droplet_id: int) -> Droplet:
        """One droplet; raises `NotFound` for what the token does not see."""
        answer = await self._api.get("GetDroplet", path_of("droplets", droplet_id))
        found = read_droplet(dict(mapping(answer.get("droplet"))))
        if found is None or found.id != droplet_id:
            raise CloudError(f"GetDroplet: the answer is not about droplet {droplet_id}")
        return found

    def remember(self, droplet_ids: Collection[int]) -> None:
        """That these are Nodes' machines, as some list had them."""
        for droplet_id in droplet_ids:
            self._own[droplet_id] = None

    async def why_token_is_foreign(
        self, asked: Collection[int], current: Collection[int] = ()
    ) -> str:
        """Why the token may not see the cluster's droplets; empty when it saw one or the VPC.

        `current` is what it has just listed; `asked` are those that nothing is seen of.
        """
        if (self._own.keys() & {*current}) - {*asked}:
            return ""
        try:
            if self._vpc:
                return await self.why_vpc_is_foreign()
            for other in sorted(self._own.keys() - {*asked}, reverse=True)[:1]:
                await self.get(other)
                return ""
        except NotFound:
            pass
        except CloudError as error:
            return str(error)
        return (
            "the token sees nothing else of this cluster: it may be another team's; give vpc-id "
            "in [Global] if this was the last droplet"
        )

    async def why_vpc_is_foreign(self) -> str:
        """Why the token may be another team's: it does not see the VPC of the configuration."""
        if self._vpc:
            try:
                answer = await self._api.get("GetVpc", path_of("vpcs", self._vpc))
                verify_about("GetVpc", mapping(answer.get("vpc")), "id", self._vpc)
            except NotFound:
                return (
                    f"the token does not see VPC {self._vpc}: it is another team's, "
                    "or vpc-id in [Global] is wrong"
                )
        return ""


def read_droplet(record: Json) -> Droplet | None:
    """A record, or None for what is invalid."""
    droplet_id, name = record.get("id"), text(record.get("name"))
    if not isinstance(droplet_id, int) or isinstance(droplet_id, bool) or not name:
        return None
    networks = mapping(record.get("networks"))
    v4, v6 = (objects(networks.get(key))[:MAX_PARTS] for key in ("v4", "v6"))
    return Droplet(
        id=droplet_id,
        name=name,
        status=text(record.get("status")),
        size=text(record.get("size_slug")),
        region=text(mapping(record.get("region")).get("slug")),
        vpc=text(record.get("vpc_uuid")).lower(),
        private=tuple(_addresses(v4, "private")),
        public=(*_addresses(v4, "public"), *_addresses(v6, "public")),
        tags=ids.tags_of(record),
    )


def _addresses(networks: list[Json], kind: str) -> Iterator[str]:
    for network in networks:
        try:
            if network.get("type") == kind:
                yield str(ip_address(text(network.get("ip_address"))))
        except ValueError:
            continue
