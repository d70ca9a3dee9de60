"""What EC2 says about Nodes: many to a call, and three answers, never two."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from ccm.cloud.lookup import Lookup, look_up, one_answer
from ccm.cloud.machines import confirmed, foreign_text, why_not_asked
from ccm.errors import CloudError
from ccm.model.cloud import AddressType, Answer, Gone, Instance, NodeAddress, PowerState, Unknown
from ccm.model.objects import Json, Node, mapping, objects, text
from ccm.providers.aws import ids
from ccm.providers.aws.client import (
    ID_MALFORMED,
    ID_NOT_FOUND,
    MAX_FILTER_VALUES,
    MAX_INSTANCES_PER_PAGE,
    AwsApi,
    AwsError,
    call_without_wrong_ids,
)
from ccm.providers.aws.tags import ClusterTag, ClusterTagging, read_tags
from ccm.providers.aws.topology import LAYER_LABEL, Labels, NetworkTopology
from ccm.providers.aws.vpc import GONE_STATES, Zones

POWER_STATES = {
    "pending": PowerState.RUNNING,
    "running": PowerState.RUNNING,
    "stopping": PowerState.STOPPED,
    "stopped": PowerState.STOPPED,
}
ZONE_ID_LABEL = "topology.k8s.aws/zone-id"
STATES_WITH_NAME = ("pending", "running", "stopping", "stopped", "shutting-down")
"""The states in which an instance has its name; a terminated one's name is free again."""


class AwsInstances:
    """Looks Nodes up by provider ID or resource-based name, else by private DNS name."""

    batch_size = MAX_FILTER_VALUES

    def __init__(
        self,
        api: AwsApi,
        tagging: ClusterTagging,
        zones: Zones,
        topology: NetworkTopology,
        families: Sequence[str],
    ) -> None:
        self._api, self._tagging, self._zones, self._families = api, tagging, zones, families
        self._topology = topology

    def machine_of(self, provider_id: str) -> str:
        """The instance ID: the zone may be written or not."""
        return ids.instance_id_of(provider_id)

    def describe(self, nodes: Sequence[Node]) -> Mapping[str, Answer]:
        """Answer for each Node; a call that failed makes only its own Nodes `Unknown`.

        An instance is gone if a filter finds none as well: no error code alone says so.
        """
        by_id, by_name, answers = self._split(nodes)
        lookups = Lookup(by_id, self._look_up_ids), Lookup(by_name, self._look_up_names)
        answers |= look_up(self.batch_size, *lookups)
        gone = {name: item for name, item in by_id.items() if isinstance(answers[name], Gone)}
        try:
            filtered = look_up(self.batch_size, Lookup(gone, self._find_ids))
        except CloudError as error:
            filtered = dict.fromkeys(gone, Unknown(str(error)))
        answers |= {name: confirmed(answers[name], filtered[name]) for name in gone}
        return self._with_labels(nodes, answers)

    def _split(
        self, nodes: Sequence[Node]
    ) -> tuple[dict[str, str], dict[str, str], dict[str, Answer]]:
        """By node name: instance IDs to look up, DNS names to look up, answers without a call."""
        by_id, by_name, answers = dict[str, str](), dict[str, str](), dict[str, Answer]()
        for node in nodes:
            if why := why_not_asked(node, ids.PROVIDER_IDS, self.machine_of, "instance"):
                answers[node.name] = Unknown(why)
            elif instance_id := (
                self.machine_of(node.provider_id) or ids.instance_id_in_name(node.name)
            ):
                by_id[node.name] = instance_id
            elif ids.can_be_dns_name(node.name):
                by_name[node.name] = node.name
            else:
                answers[node.name] = Unknown(f"{node.name!r} is not a private DNS name")
        return by_id, by_name, answers

    def _find_ids(self, instance_ids: Sequence[str]) -> Mapping[str, Answer]:
        absent = {
            instance_id: Gone(f"EC2 lists no instance {instance_id}")
            for instance_id in instance_ids
        }
        records = self._api.find_instances(instance_ids)
        return absent | self._read_all(records, "InstanceId")

    def _look_up_ids(self, instance_ids: Sequence[str]) -> Mapping[str, Answer]:
        """An error that names no ID that was asked for says nothing about any of them."""
        codes = (ID_NOT_FOUND, ID_MALFORMED)
        try:
            records, wrong = call_without_wrong_ids(
                codes, instance_ids, lambda left: self._api.describe_instances(InstanceIds=left)
            )
        except AwsError as error:
            if error.code in codes:
                raise CloudError(str(error)) from error
            raise
        answers: dict[str, Answer] = {
            item: Gone(f"EC2 has no instance {item}")
            if code == ID_NOT_FOUND
            else Unknown(f"EC2 does not take {item} for an instance ID")
            for item, code in wrong.items()
        }
        return answers | self._read_all(records or [], "InstanceId")

    def _look_up_names(self, names: Sequence[str]) -> Mapping[str, Answer]:
        filters = [
            {"Name": "private-dns-name", "Values": list(names)},
            {"Name": "instance-state-name", "Values": list(STATES_WITH_NAME)},
        ]
        records = self._api.describe_instances(Filters=filters, MaxResults=MAX_INSTANCES_PER_PAGE)
        answers: dict[str, Answer] = {
            name: Gone(f"EC2 has no instance with the private DNS name {name}") for name in names
        }
        return answers | self._read_all(records, "PrivateDnsName")

    def _read_all(self, records: Sequence[Json], key: str) -> dict[str, Answer]:
        """The answers in the records, by the field that was asked for.

        Of several with one name those of this cluster count: another VPC may have the addresses.
        """
        tag = self._tagging.required_tag()
        found: dict[str, list[Json]] = defaultdict(list)
        for record in records:
            found[text(record.get(key))].append(record)
        answers = dict[str, Answer]()
        for value, some in found.items():
            own = [item for item in some if not tag or tag.is_on(read_tags(item.get("Tags")))]
            read = [self._read(record, tag) for record in own or some]
            answers[value] = one_answer(read, f"instances are {value}")
        return answers

    def _read(self, record: Json, tag: ClusterTag | None) -> Answer:
        """A kubelet may write any ID: an instance that exists has to be this cluster's."""
        answer = read_instance(record, self._api.region, self._families)
        if isinstance(answer, Instance) and tag and not tag.is_on(read_tags(record.get("Tags"))):
            what = f"instance {text(record.get('InstanceId'))}"
            return Unknown(foreign_text(what, [f"tag:{tag.key}"]))
        return answer

    def _with_labels(
        self, nodes: Sequence[Node], answers: Mapping[str, Answer]
    ) -> Mapping[str, Answer]:
        """The answers with what upstream adds; a label that could not be read is left out."""
        found = {name: item for name, item in answers.items() if isinstance(item, Instance)}
        labels = self._zone_labels(found), self._topology_labels(nodes, found)
        return {
            name: replace(
                item, labels={k: v for each in labels for k, v in each.get(name, {}).items()}
            )
            if isinstance(item, Instance)
            else item
            for name, item in answers.items()
        }

    def _zone_labels(self, found: Mapping[str, Instance]) -> Mapping[str, Labels]:
        names = {item.zone for item in found.values()}
        try:
            zones = self._zones.by_name(names) if names else {}
        except CloudError:
            return {}
        ids_by_zone = {name: zone.id for name, zone in zones.items() if zone.id}
        return {
            name: {ZONE_ID_LABEL: ids_by_zone[item.zone]}
            for name, item in found.items()
            if item.zone in ids_by_zone
        }

    def _topology_labels(
        self, nodes: Sequence[Node], found: Mapping[str, Instance]
    ) -> Mapping[str, Labels]:
        """Of instances that run and whose Nodes have none of them yet."""
        labelled = {node.name for node in nodes if f"{LAYER_LABEL}1" in node.labels}
        by_name = {
            name: ids.instance_id_of(item.provider_id)
            for name, item in found.items()
            if name not in labelled and item.power is PowerState.RUNNING
        }
        read = self._topology.labels_of({item: found[name].type for name, item in by_name.items()})
        return {name: read[item] for name, item in by_name.items() if item in read}


def read_instance(record: Json, region: str, families: Sequence[str]) -> Answer:
    """The answer in one record; `Unknown` when it is not what a record should be."""
    instance_id = text(record.get("InstanceId"))
    state = text(mapping(record.get("State")).get("Name"))
    zone = text(mapping(record.get("Placement")).get("AvailabilityZone"))
    if not instance_id or not state:
        return Unknown("EC2's record lacks an ID or a state")
    if state in GONE_STATES:
        return Gone(f"instance {instance_id} is {state}", is_final=True)
    if not zone:
        return Unknown(f"EC2's record of {instance_id} lacks its zone")
    try:
        addresses = addresses_of(record, families)
    except ValueError as error:
        return Unknown(f"EC2's record of {instance_id} has a wrong address: {error}")
    return Instance(
        provider_id=ids.provider_id(zone, instance_id),
        type=text(record.get("InstanceType")),
        zone=zone,
        region=region,
        addresses=addresses,
        power=POWER_STATES.get(state, PowerState.UNKNOWN),
        names=(text(record.get("PrivateDnsName")), instance_id),
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
            if ip := text(first.get("Ipv6Address")):
                yield NodeAddress(AddressType.INTERNAL_IP, str(ip_address(ip)))


def _interfaces_in_use(instance: Mapping[str, Any]) -> list[Json]:
    """The primary interface first, whatever order the answer has them in."""

    def position(interface: Json) -> tuple[int, int]:
        attachment = mapping(interface.get("Attachment"))
        card, device = attachment.get("NetworkCardIndex"), attachment.get("DeviceIndex")
        return card if isinstance(card, int) else 0, device if isinstance(device, int) else 0

    interfaces = objects(instance.get("NetworkInterfaces"))
    in_use = [interface for interface in interfaces if interface.get("Status") == "in-use"]
    return sorted(in_use, key=position)
