"""Which subnets a load balancer lives in: one a zone, chosen as upstream does."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from ccm.errors import Refused
from ccm.model.objects import Json, mapping, objects, text
from ccm.providers.aws.tags import CLUSTER_TAG_PREFIX, ClusterTag, Tags, read_tags

ROLE_TAGS = {True: "kubernetes.io/role/internal-elb", False: "kubernetes.io/role/elb"}


@dataclass(frozen=True, slots=True)
class Subnet:
    """A subnet; `is_public` when its route table leads to an internet gateway.

    `is_regular` when its zone is no Local Zone and no other place outside of the region's own;
    `is_public_ipv6` when the internet reaches its IPv6 addresses, of which `ipv6_cidr` is empty
    where it has none.
    """

    id: str
    zone: str
    cidr: str
    tags: Tags
    is_public: bool
    is_regular: bool = True
    ipv6_cidr: str = ""
    is_public_ipv6: bool = False

    @property
    def name(self) -> str:
        return self.tags.get("Name", "")

    @property
    def cidrs(self) -> tuple[str, ...]:
        """Its networks of both families."""
        return tuple(filter(None, (self.cidr, self.ipv6_cidr)))


def read_subnets(subnets: Iterable[Json], tables: Sequence[Json]) -> list[Subnet]:
    """The subnets of a VPC in EC2's records of them and of its route tables."""
    public, public_ipv6 = _public(tables), _public(tables, "DestinationIpv6CidrBlock", "::/0")
    main = public.get("", False), public_ipv6.get("", False)
    return [
        Subnet(
            id=text(record.get("SubnetId")),
            zone=text(record.get("AvailabilityZone")),
            cidr=text(record.get("CidrBlock")),
            tags=read_tags(record.get("Tags")),
            is_public=public.get(text(record.get("SubnetId")), main[0]),
            ipv6_cidr=_ipv6_cidr(record),
            is_public_ipv6=public_ipv6.get(text(record.get("SubnetId")), main[1]),
        )
        for record in subnets
    ]


def amount_of(subnets: Sequence[Subnet]) -> int:
    """How much is known of them: of two lists the one with less lacks a part."""
    known = ((*it.cidrs, it.is_public, it.is_public_ipv6, *it.tags) for it in subnets)
    return sum(map(bool, chain.from_iterable(known)))


def _ipv6_cidr(record: Json) -> str:
    for association in objects(record.get("Ipv6CidrBlockAssociationSet")):
        if mapping(association.get("Ipv6CidrBlockState")).get("State") == "associated":
            return text(association.get("Ipv6CidrBlock"))
    return ""


def _public(tables: Sequence[Json], destination: str = "", network: str = "") -> Mapping[str, bool]:
    """Whether each subnet with a table of its own is public; under "" the VPC's main table.

    A `destination` is the field in which a route to the internet has to name the `network`.
    """
    found: dict[str, bool] = {}
    for table in tables:
        leads_out = any(
            text(route.get("GatewayId")).startswith("igw-")
            and (not destination or route.get(destination) == network)
            for route in objects(table.get("Routes"))
        )
        for association in objects(table.get("Associations")):
            is_main = association.get("Main") is True
            found["" if is_main else text(association.get("SubnetId"))] = leads_out
    return found


def discover_subnets(
    subnets: Sequence[Subnet], tag: ClusterTag, is_internal: bool, in_use: Collection[str]
) -> list[Subnet]:
    """One subnet for each regular zone; an internet-facing load balancer only in public ones.

    A subnet with the role's tag goes before one without, then one with the cluster's tag, then one
    that is in use already, then the first by ID. Subnets that only other clusters have tagged are
    left alone.
    """
    by_zone: dict[str, list[Subnet]] = {}
    for subnet in subnets:
        cluster_tags = [key for key in subnet.tags if key.startswith(CLUSTER_TAG_PREFIX)]
        if cluster_tags and not tag.is_on(subnet.tags):
            continue
        if subnet.is_regular and (is_internal or subnet.is_public):
            by_zone.setdefault(subnet.zone, []).append(subnet)
    role = ROLE_TAGS[is_internal]

    def rank(subnet: Subnet) -> tuple[bool, bool, bool, str]:
        is_tagged = tag.is_on(subnet.tags)
        return role not in subnet.tags, not is_tagged, subnet.id not in in_use, subnet.id

    chosen = [min(found, key=rank) for _, found in sorted(by_zone.items())]
    if not chosen:
        kind = "subnet" if is_internal else "public subnet"
        raise Refused(
            f"the VPC has no {kind} for a load balancer: tag one with {tag.key} and {role}"
        )
    return chosen


def named_subnets(subnets: Sequence[Subnet], names: Sequence[str]) -> list[Subnet]:
    """The subnets of these IDs or names, one a zone; `Refused` for others."""
    picked: list[Subnet] = []
    for name in names:
        found = [subnet for subnet in subnets if name in (subnet.id, subnet.name)]
        if len(found) != 1:
            count = f"{len(found)} subnets are" if found else "no subnet of the VPC is"
            raise Refused(f"{count} called {name!r}")
        picked += found
    zones = [subnet.zone for subnet in picked]
    if twice := sorted({zone for zone in zones if zones.count(zone) > 1}):
        raise Refused(f"two subnets in {', '.join(twice)}: give one a zone")
    return sorted(picked, key=lambda subnet: subnet.zone)
