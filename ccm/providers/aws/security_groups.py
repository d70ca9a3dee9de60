"""Security groups as sets of rules: what differs, and the calls that make it equal."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ccm.errors import CloudError, Refused
from ccm.model.objects import Json, objects, text
from ccm.providers.aws.client import AwsApi
from ccm.providers.aws.failures import AwsError
from ccm.providers.aws.tags import Tags, read_tags

ALL = "-1"
FULL = "RulesPerSecurityGroupLimitExceeded"
RACED = ("InvalidPermission.Duplicate", "InvalidPermission.NotFound")


@dataclass(frozen=True, slots=True)
class Rule:
    """One permission to come in. AWS tells rules apart by everything but the note."""

    protocol: str
    first: int  # port, or type of ICMP
    last: int
    source: str  # a network, or the ID of a security group
    note: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Group:
    """A security group as it is."""

    id: str
    name: str
    tags: Tags
    rules: frozenset[Rule]


@dataclass(frozen=True, slots=True)
class Authorize:
    """Let these come in."""

    group_id: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Revoke:
    """Let these come in no longer."""

    group_id: str
    rules: tuple[Rule, ...]


RuleChange = Authorize | Revoke


def read_group(record: Json) -> Group:
    permissions = objects(record.get("IpPermissions"))
    return Group(
        text(record.get("GroupId")),
        text(record.get("GroupName")),
        read_tags(record.get("Tags")),
        frozenset(rule for permission in permissions for rule in _rules(permission)),
    )


def _rules(permission: Json) -> Iterator[Rule]:
    protocol = text(permission.get("IpProtocol"))
    ports = permission.get("FromPort", -1), permission.get("ToPort", -1)
    for members, key in (
        ("IpRanges", "CidrIp"),
        ("Ipv6Ranges", "CidrIpv6"),
        ("UserIdGroupPairs", "GroupId"),
        ("PrefixListIds", "PrefixListId"),
    ):
        for member in objects(permission.get(members)):
            note = text(member.get("Description"))
            yield Rule(protocol, *ports, text(member.get(key)), note)


def changes(group: Group, wanted: Iterable[Rule], ours: Iterable[Rule]) -> Iterator[RuleChange]:
    """What gives the group the wanted rules, and takes away those of `ours` that are not wanted.

    What is missing comes first: nobody who may come in is kept out meanwhile.
    """
    want = set(wanted)
    if missing := want - group.rules:
        yield Authorize(group.id, _in_order(missing))
    if surplus := set(ours) - want:
        yield Revoke(group.id, _in_order(surplus))


def _in_order(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    return tuple(sorted(rules, key=lambda r: (r.protocol, r.first, r.last, r.source)))


def perform(api: AwsApi, change: RuleChange) -> None:
    """Make one call; a race with another writer is a `CloudError`, to be planned again."""
    verb = "Authorize" if isinstance(change, Authorize) else "Revoke"
    try:
        api.call(
            f"ec2:{verb}SecurityGroupIngress",
            GroupId=change.group_id,
            IpPermissions=permissions(change.rules),
        )
    except AwsError as error:
        if error.code == FULL:
            raise Refused(
                f"security group {change.group_id} has no room for {len(change.rules)} more rules:"
                " raise the quota 'Inbound or outbound rules per security group', or set"
                " DisableSecurityGroupIngress"
            ) from error
        if error.code in RACED:
            raise CloudError(str(error)) from error
        raise


def permissions(rules: Iterable[Rule]) -> list[Json]:
    """The rules as a parameter; sources of the same ports together."""
    members: Mapping[tuple[str, int, int], Json] = defaultdict(dict)
    for rule in rules:
        key, name = _source_key(rule.source)
        source = {name: rule.source} | ({"Description": rule.note} if rule.note else {})
        members[rule.protocol, rule.first, rule.last].setdefault(key, []).append(source)
    return [_permission(*ports, sources) for ports, sources in members.items()]


def _permission(protocol: str, first: int, last: int, sources: Json) -> Json:
    ports = {} if protocol == ALL else {"FromPort": first, "ToPort": last}
    return {"IpProtocol": protocol, **ports, **sources}


def _source_key(source: str) -> tuple[str, str]:
    if source.startswith("sg-"):
        return "UserIdGroupPairs", "GroupId"
    return ("Ipv6Ranges", "CidrIpv6") if ":" in source else ("IpRanges", "CidrIp")
