"""Security groups as sets of ingress rules, and what makes them equal; nothing in here acts."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from ccm.model.objects import Json, objects, text
from ccm.providers.aws.tags import Tags, read_tags

ALL_PROTOCOLS = "-1"
RULE_PREFIX = "kubernetes.io/rule/"  # of the descriptions of rules in nodes' groups


@dataclass(frozen=True, slots=True)
class IngressRule:
    """One permission to come in. AWS distinguishes rules by everything but the description."""

    protocol: str
    first: int  # port, or type of ICMP
    last: int
    source: str  # a network, or the ID of a security group
    description: str = field(default="", compare=False)


def packet_size_rule(source: str, description: str = "") -> IngressRule:
    """Lets in the messages which say that a packet is too big for its path."""
    protocol, kind, code = ("icmpv6", 2, 0) if ":" in source else ("icmp", 3, 4)
    return IngressRule(protocol, kind, code, source, description)


@dataclass(frozen=True, slots=True)
class SecurityGroup:
    """A security group as it is."""

    id: str
    name: str
    tags: Tags
    rules: frozenset[IngressRule]

    @property
    def is_opened(self) -> bool:
        """Whether it is a nodes' group with rules for load balancers."""
        return any(rule.description.startswith(RULE_PREFIX) for rule in self.rules)


@dataclass(frozen=True, slots=True)
class IngressChange:
    """Let these come in, or no longer, or give them their descriptions."""

    action: Literal["Authorize", "Revoke", "Describe"]
    group_id: str
    rules: tuple[IngressRule, ...]


def read_security_group(record: Json) -> SecurityGroup:
    """The group in EC2's record."""
    permissions = objects(record.get("IpPermissions"))
    return SecurityGroup(
        text(record.get("GroupId")),
        text(record.get("GroupName")),
        read_tags(record.get("Tags")),
        frozenset(rule for permission in permissions for rule in _rules(permission)),
    )


def _rules(permission: Json) -> Iterator[IngressRule]:
    protocol = text(permission.get("IpProtocol"))
    ports = permission.get("FromPort", -1), permission.get("ToPort", -1)
    for members, key in (
        ("IpRanges", "CidrIp"),
        ("Ipv6Ranges", "CidrIpv6"),
        ("UserIdGroupPairs", "GroupId"),
        ("PrefixListIds", "PrefixListId"),
    ):
        for member in objects(permission.get(members)):
            description = text(member.get("Description"))
            yield IngressRule(protocol, *ports, text(member.get(key)), description)


def plan_ingress(
    group: SecurityGroup, desired: Iterable[IngressRule], ours: Iterable[IngressRule]
) -> Iterator[IngressChange]:
    """Yield what adds the desired rules and removes those of `ours` that are not desired.

    What is missing comes first: no permitted source is kept out meanwhile.
    """
    want = set(desired)
    if missing := want - group.rules:
        yield IngressChange("Authorize", group.id, _in_order(missing))
    if surplus := set(ours) - want:
        yield IngressChange("Revoke", group.id, _in_order(surplus))


def _in_order(rules: Iterable[IngressRule]) -> tuple[IngressRule, ...]:
    return tuple(sorted(rules, key=lambda r: (r.protocol, r.first, r.last, r.source)))
