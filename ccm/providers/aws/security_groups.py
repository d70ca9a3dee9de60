"""Security groups as sets of rules, and what makes them equal; nothing in here acts."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ccm.model.objects import Json, objects, text
from ccm.providers.aws.tags import Tags, read_tags

ALL = "-1"


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
