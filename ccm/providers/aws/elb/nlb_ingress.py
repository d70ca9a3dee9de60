"""The rules of nodes' security groups, in which an NLB's clients come with their own addresses."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network

from ccm.model.service import HealthCheck
from ccm.providers.aws.elb.nlb_desired import DesiredNlb
from ccm.providers.aws.elb.request import DUALSTACK, IPV4, IPV6
from ccm.providers.aws.security_groups import (
    IngressChange,
    IngressRule,
    SecurityGroup,
    packet_size_rule,
    plan_ingress,
)

MAX_READ = 16384  # networks that are kept as they were read
CLIENT_RULE = "kubernetes.io/rule/nlb/client"
HEALTH_RULE = "kubernetes.io/rule/nlb/health"
MTU_RULE = "kubernetes.io/rule/nlb/mtu"
"""How the description of a rule in a node's group begins; `=` and the load balancer may follow."""


def node_rules(
    desired: DesiredNlb, ranges: Iterable[str], cidrs: Iterable[str], node_check: HealthCheck | None
) -> frozenset[IngressRule]:
    """Clients may reach the node ports from `ranges`, health checks come from the subnets.

    A group has room for few rules: what clients may do anyhow takes none for health checks. A
    port that is not only this Service's may be checked for others as well. `cidrs` are of the
    subnets; clients of a family that is not the targets' come from there, too.
    """
    name = desired.nlb.name
    own_ports = {group.port for group in desired.groups.values()}
    if node_check:
        own_ports.add(node_check.port)
    clients, checks = set[IngressRule](), set[IngressRule]()
    for group in desired.groups.values():
        check_port = group.health_check.port
        port = group.port if check_port == "traffic-port" else int(check_port)
        health = f"{HEALTH_RULE}={name}" if port in own_ports else HEALTH_RULE
        sources = [cidr for cidr in ranges if family_of(cidr) == group.family]
        inside = [cidr for cidr in cidrs if family_of(cidr) == group.family]
        if desired.nlb.address_type == DUALSTACK:
            sources += [item for item in inside if not any(_is_part(item, of) for of in sources)]
        clients |= {
            IngressRule(protocol, group.port, group.port, cidr, f"{CLIENT_RULE}={name}")
            for protocol in group.protocol.replace("TLS", "TCP").lower().split("_")
            for cidr in sources
        }
        checks |= {IngressRule("tcp", port, port, cidr, health) for cidr in inside}
    by_port = defaultdict[tuple[str, int], list[str]](list)
    for rule in clients:
        by_port[rule.protocol, rule.first].append(rule.source)
    return frozenset(clients | {check for check in checks if not _is_covered(check, by_port)})


def family_of(cidr: str) -> str:
    """The family of a network."""
    return IPV6 if ":" in cidr else IPV4


def _is_covered(check: IngressRule, sources: Mapping[tuple[str, int], Iterable[str]]) -> bool:
    """Whether the sources of clients of its port have that of the health check as well."""
    return any(_is_part(check.source, of) for of in sources.get((check.protocol, check.first), ()))


@lru_cache(maxsize=MAX_READ)
def _network(cidr: str) -> IPv4Network | IPv6Network:
    return ip_network(cidr, strict=False)


def _is_part(cidr: str, of: str) -> bool:
    inner, outer = _network(cidr), _network(of)
    if isinstance(inner, IPv4Network) and isinstance(outer, IPv4Network):
        return inner.subnet_of(outer)
    if isinstance(inner, IPv6Network) and isinstance(outer, IPv6Network):
        return inner.subnet_of(outer)
    return False


@dataclass(frozen=True, slots=True)
class Owner:
    """A load balancer, the rules that it had, and those of others by their names.

    A node port may become another Service's: the rule, of which AWS has one, is then described as
    that of the load balancer which came first, and stays when that is `gone`.
    """

    name: str
    former: frozenset[IngressRule] = frozenset()
    others: Mapping[str, frozenset[IngressRule]] = field(default_factory=dict)
    gone: Collection[str] = ()

    def rules_in(self, group: SecurityGroup) -> set[IngressRule]:
        """Its own that no other has now, also those described as of one that is gone."""
        found = {rule for rule in group.rules if self._is_its(rule, _named(rule))}
        return found.difference(*self.others.values())

    def _is_its(self, rule: IngressRule, named: str) -> bool:
        return named == self.name or (named in self.gone and rule in self.former)

    @property
    def has_heir(self) -> bool:
        """Whether another one has some of the rules that it had."""
        return any(not self.former.isdisjoint(rules) for rules in self.others.values())


def plan_node_ingress(
    group: SecurityGroup, desired: frozenset[IngressRule], owner: Owner
) -> Iterator[IngressChange]:
    """What one load balancer needs changed in a group that serves several.

    Messages about the size of packets may come from wherever clients may, and a health check that
    all load balancers share stays as long as any of them has clients. AWS has one rule for both.
    """
    own = owner.rules_in(group)
    left = [*(group.rules - own), *desired]
    clients = {rule.source for rule in left if rule.description.startswith(CLIENT_RULE)}
    mtu = {packet_size_rule(cidr, MTU_RULE) for cidr in clients}
    shared = {rule for rule in group.rules if rule.description in (HEALTH_RULE, MTU_RULE)}
    checks = {rule for rule in shared if rule.description == HEALTH_RULE and clients}
    yield from plan_ingress(group, desired | mtu | checks, own | shared)


def _named(rule: IngressRule) -> str:
    """The load balancer in a rule's description; empty where it is none's alone."""
    kind, _, name = rule.description.partition("=")
    return name if kind in (CLIENT_RULE, HEALTH_RULE) else ""
