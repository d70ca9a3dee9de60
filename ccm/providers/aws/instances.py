"""What EC2 says about Nodes: many to a call, and three answers, never two."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ccm.errors import CloudError
from ccm.model.cloud import Answer, Gone, Instance, PowerState, Unknown
from ccm.model.node import Node
from ccm.model.objects import Json, mapping, objects, text
from ccm.providers.aws import ids
from ccm.providers.aws.addresses import addresses_of
from ccm.providers.aws.client import AwsApi
from ccm.providers.aws.lookup import Found, Kind, look_up
from ccm.providers.aws.tags import Mark, Ownership, read_tags
from ccm.providers.aws.zones import ZONE_ID, Zone, Zones

BATCH = 200
"""The most values of one filter; as many IDs are asked for at once."""
PAGE = 1000
INSTANCE = Kind("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed", ids.INSTANCE_ID)
BY_NAME = ("pending", "running", "stopping", "stopped", "shutting-down")
"""The states in which an instance has its name; a terminated one's name is free again."""
POWER = {
    "pending": PowerState.RUNNING,
    "running": PowerState.RUNNING,
    "stopping": PowerState.STOPPED,
    "stopped": PowerState.STOPPED,
}
GONE = ("shutting-down", "terminated")


@dataclass(frozen=True, slots=True)
class Lookup:
    """One call's worth of Nodes, by what EC2 is asked for: IDs or private DNS names."""

    by_id: bool
    nodes: Mapping[str, str]  # node name to instance ID or DNS name

    @property
    def asked(self) -> list[str]:
        return list(dict.fromkeys(self.nodes.values()))

    @property
    def key(self) -> str:
        """The field of an instance that holds what was asked for."""
        return "InstanceId" if self.by_id else "PrivateDnsName"


class AwsInstances:
    """Looks Nodes up by provider ID or resource-based name, else by private DNS name."""

    batch_size = BATCH

    def __init__(self, api: AwsApi, ownership: Ownership, families: Sequence[str]) -> None:
        self._api, self._ownership, self._families = api, ownership, families
        self._zones = Zones(api)

    def describe(self, nodes: Sequence[Node]) -> Mapping[str, Answer]:
        """Answer for each Node; a call that failed makes only its own Nodes `Unknown`."""
        lookups, answers = questions_of(nodes)
        failures: list[CloudError] = []
        for lookup in lookups:
            try:
                answers |= self._judge(lookup, self._ask(lookup))
            except CloudError as failure:
                failures.append(failure)
                answers |= dict.fromkeys(lookup.nodes, Unknown(str(failure)))
        if failures and len(failures) == len(lookups):
            raise failures[0]
        return self._with_zone_ids(answers)

    def _ask(self, lookup: Lookup) -> Found:
        if lookup.by_id:
            return look_up(INSTANCE, lookup.asked, self._by_ids)
        filters = [
            {"Name": "private-dns-name", "Values": lookup.asked},
            {"Name": "instance-state-name", "Values": list(BY_NAME)},
        ]
        return Found(describe_instances(self._api, Filters=filters, MaxResults=PAGE))

    def _by_ids(self, instance_ids: Sequence[str]) -> Sequence[Json]:
        return describe_instances(self._api, InstanceIds=list(instance_ids))

    def _judge(self, lookup: Lookup, found: Found) -> dict[str, Answer]:
        """What one answer says about each of its Nodes."""
        said: dict[str, list[Answer]] = defaultdict(list)
        mark = None if lookup.by_id else self._ownership.mark_to_look_for()
        for record in found.records:
            said[text(record.get(lookup.key))].append(self._read(record, mark))
        return {
            node: one_of(asked, said.get(asked, []), found, lookup.by_id)
            for node, asked in lookup.nodes.items()
        }

    def _read(self, record: Json, mark: Mark | None) -> Answer:
        if mark and not mark.is_on(read_tags(record.get("Tags"))):
            instance_id = text(record.get("InstanceId"))
            return Unknown(f"instance {instance_id} has this name, but not the tag {mark.key}")
        return read_instance(record, self._api.region, self._families)

    def _with_zone_ids(self, answers: Mapping[str, Answer]) -> Mapping[str, Answer]:
        zones = {a.zone for a in answers.values() if isinstance(a, Instance) and a.zone}
        known = self._zones.named(zones) if zones else {}
        return {name: with_zone_id(answer, known) for name, answer in answers.items()}


def describe_instances(api: AwsApi, **question: Any) -> list[Json]:
    """The instances in all reservations of all pages."""
    reservations = api.pages("ec2:DescribeInstances", "Reservations", **question)
    return [one for reservation in reservations for one in objects(reservation.get("Instances"))]


def questions_of(nodes: Sequence[Node]) -> tuple[list[Lookup], dict[str, Answer]]:
    """What to ask EC2, in calls of at most `BATCH` Nodes, and the answers that need no call."""
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
    return [*_batches(True, by_id), *_batches(False, by_name)], answers


def _batches(by_id: bool, asked: Mapping[str, str]) -> Iterator[Lookup]:
    names = list(asked)
    for start in range(0, len(names), BATCH):
        yield Lookup(by_id, {name: asked[name] for name in names[start : start + BATCH]})


def one_of(asked: str, said: Sequence[Answer], found: Found, by_id: bool) -> Answer:
    """The one answer in everything that was said about an ID or a name."""
    if asked in found.absent and said:
        return Unknown(f"EC2 says both that {asked} exists and that it does not")
    if asked in found.absent:
        return Gone(f"EC2 has no instance {asked}")
    if asked in found.malformed:
        return Unknown(f"EC2 does not take {asked} for an instance ID")
    existing = [answer for answer in said if not isinstance(answer, Gone)]
    if len(existing) > 1:
        found_ids = sorted(a.provider_id if isinstance(a, Instance) else "?" for a in existing)
        return Unknown(f"{len(existing)} instances are {asked}: {', '.join(found_ids)}")
    if said:
        return existing[0] if existing else said[0]
    if by_id:
        return Unknown(f"EC2's answer leaves {asked} out")
    return Gone(f"EC2 has no instance with the private DNS name {asked}")


def read_instance(record: Json, region: str, families: Sequence[str]) -> Answer:
    """The answer in one record; `Unknown` when it is not what a record should be."""
    instance_id = text(record.get("InstanceId"))
    state = text(mapping(record.get("State")).get("Name"))
    zone = text(mapping(record.get("Placement")).get("AvailabilityZone"))
    if not instance_id or not state:
        return Unknown("EC2's record lacks an ID or a state")
    if state in GONE:
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
        power=POWER.get(state, PowerState.UNKNOWN),
    )


def with_zone_id(answer: Answer, zones: Mapping[str, Zone] | CloudError) -> Answer:
    """The answer with the label of its zone's ID; a label that could not be read is left out."""
    if not isinstance(answer, Instance) or isinstance(zones, CloudError):
        return answer
    zone = zones.get(answer.zone)
    return replace(answer, labels={ZONE_ID: zone.id}) if zone and zone.id else answer
