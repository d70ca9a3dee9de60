"""EC2's records of instances as answers about Nodes; nothing in here acts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from ccm.model.cloud import AddressType, Answer, Gone, Instance, NodeAddress, PowerState, Unknown
from ccm.model.objects import Json, Node, mapping, objects, text
from ccm.providers.aws import ids

POWER_STATES = {
    "pending": PowerState.RUNNING,
    "running": PowerState.RUNNING,
    "stopping": PowerState.STOPPED,
    "stopped": PowerState.STOPPED,
}
GONE_STATES = ("shutting-down", "terminated")


@dataclass(frozen=True, slots=True)
class InstanceQuery:
    """One call's worth of Nodes, by what EC2 is asked for: IDs or private DNS names."""

    by_id: bool
    nodes: Mapping[str, str]  # node name to instance ID or DNS name

    @property
    def values(self) -> list[str]:
        """The IDs or names, each once."""
        return list(dict.fromkeys(self.nodes.values()))

    @property
    def key(self) -> str:
        """The field of an instance that holds what is asked for."""
        return "InstanceId" if self.by_id else "PrivateDnsName"


@dataclass(frozen=True, slots=True)
class DescribeResult:
    """The records of one call, the IDs that AWS denies, and those it cannot read."""

    records: Sequence[Json]
    not_found: frozenset[str] = frozenset()
    malformed: frozenset[str] = frozenset()


def queries_for(
    nodes: Sequence[Node], batch_size: int
) -> tuple[list[InstanceQuery], dict[str, Answer]]:
    """The queries to make, in calls of at most `batch_size`, and the answers that need no call."""
    by_id: dict[str, str] = {}
    by_name: dict[str, str] = {}
    answers: dict[str, Answer] = {}
    for node in nodes:
        if node.is_foreign(ids.SCHEME):
            answers[node.name] = Unknown(f"provider ID {node.provider_id} is of another cloud")
        elif node.provider_id:
            if instance_id := ids.instance_id_of(node.provider_id):
                by_id[node.name] = instance_id
            else:
                answers[node.name] = Unknown(f"provider ID {node.provider_id} names no instance")
        elif instance_id := ids.instance_id_in_name(node.name):
            by_id[node.name] = instance_id
        elif ids.can_be_dns_name(node.name):
            by_name[node.name] = node.name
        else:
            answers[node.name] = Unknown(f"{node.name!r} is no private DNS name")
    queries = [
        InstanceQuery(is_id, dict(pairs[at : at + batch_size]))
        for is_id, pairs in ((True, list(by_id.items())), (False, list(by_name.items())))
        for at in range(0, len(pairs), batch_size)
    ]
    return queries, answers


def answer_for(
    value: str, answers: Sequence[Answer], result: DescribeResult, by_id: bool
) -> Answer:
    """The one answer that all records about an ID or a name come to."""
    if value in result.not_found and answers:
        return Unknown(f"EC2 says both that {value} exists and that it does not")
    if value in result.not_found:
        return Gone(f"EC2 has no instance {value}")
    if value in result.malformed:
        return Unknown(f"EC2 does not take {value} for an instance ID")
    existing = [answer for answer in answers if not isinstance(answer, Gone)]
    if len(existing) > 1:
        found = sorted(a.provider_id if isinstance(a, Instance) else "?" for a in existing)
        return Unknown(f"{len(existing)} instances are {value}: {', '.join(found)}")
    if answers:
        return existing[0] if existing else answers[0]
    if by_id:
        return Unknown(f"EC2's answer leaves {value} out")
    return Gone(f"EC2 has no instance with the private DNS name {value}")


def read_instance(record: Json, region: str, families: Sequence[str]) -> Answer:
    """The answer in one record; `Unknown` when it is not what a record should be."""
    instance_id = text(record.get("InstanceId"))
    state = text(mapping(record.get("State")).get("Name"))
    zone = text(mapping(record.get("Placement")).get("AvailabilityZone"))
    if not instance_id or not state:
        return Unknown("EC2's record lacks an ID or a state")
    if state in GONE_STATES:
        return Gone(f"instance {instance_id} is {state}")
    if not zone:
        return Unknown(f"EC2's record of {instance_id} lacks its zone")
    try:
        addresses = addresses_of(record, families)
    except ValueError as wrong:
        return Unknown(f"EC2's record of {instance_id} has a wrong address: {wrong}")
    return Instance(
        provider_id=ids.provider_id(zone, instance_id),
        type=text(record.get("InstanceType")),
        zone=zone,
        region=region,
        addresses=addresses,
        power=POWER_STATES.get(state, PowerState.UNKNOWN),
    )


def addresses_of(instance: Mapping[str, Any], families: Sequence[str]) -> tuple[NodeAddress, ...]:
    """All addresses in upstream's order, family by family; ValueError when one is no IP.

    IPv4: the private IPs of every network interface in use, the public IP, the private DNS name,
    which is the host name too, and the public one. IPv6: the first address of each interface.
    """
    read = {"ipv4": _ipv4, "ipv6": _ipv6}
    return tuple(address for family in families for address in read[family](instance))


def _ipv4(instance: Mapping[str, Any]) -> Iterator[NodeAddress]:
    for interface in _interfaces_in_use(instance):
        for private in objects(interface.get("PrivateIpAddresses")):
            if ip := text(private.get("PrivateIpAddress")):
                yield NodeAddress(AddressType.INTERNAL_IP, str(ip_address(ip)))
    if public := text(instance.get("PublicIpAddress")):
        yield NodeAddress(AddressType.EXTERNAL_IP, str(ip_address(public)))
    if name := text(instance.get("PrivateDnsName")):
        yield NodeAddress(AddressType.INTERNAL_DNS, name)
        yield NodeAddress(AddressType.HOSTNAME, name)
    if name := text(instance.get("PublicDnsName")):
        yield NodeAddress(AddressType.EXTERNAL_DNS, name)


def _ipv6(instance: Mapping[str, Any]) -> Iterator[NodeAddress]:
    for interface in _interfaces_in_use(instance):
        for first in objects(interface.get("Ipv6Addresses"))[:1]:
            yield NodeAddress(AddressType.INTERNAL_IP, str(ip_address(text(first["Ipv6Address"]))))


def _interfaces_in_use(instance: Mapping[str, Any]) -> list[Json]:
    """The primary interface first, whatever order the answer has them in."""

    def position(interface: Json) -> tuple[int, int]:
        attachment = mapping(interface.get("Attachment"))
        card, device = attachment.get("NetworkCardIndex"), attachment.get("DeviceIndex")
        return card if isinstance(card, int) else 0, device if isinstance(device, int) else 0

    interfaces = objects(instance.get("NetworkInterfaces"))
    in_use = [interface for interface in interfaces if interface.get("Status") == "in-use"]
    return sorted(in_use, key=position)
