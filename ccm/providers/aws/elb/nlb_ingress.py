"""The rules of nodes' security groups, in which an NLB's clients come with their own addresses."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network

from ccm.model.service import HealthCheck
from ccm.providers.aws.config import SharedProbe
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
    desired: DesiredNlb,
    ranges: Iterable[str],
    cidrs: Iterable[str],
    node_check: HealthCheck | None,
    probe: SharedProbe | None,
) -> frozenset[IngressRule]:
    """Clients may reach the node ports from `ranges`, health checks come from the subnets.

    A group has room for few rules: what clients may do anyhow takes none for health checks. A
    port that is checked for all load balancers, by the `probe`, is none's own. `cidrs` are of the
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
        is_shared = probe is not None and port == probe.port and port not in own_ports
        health = HEALTH_RULE if is_shared else f"{HEALTH_RULE}={name}"
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
    that of the load balancer which came first. It is the other's once it is described so, or the
    first has it no longer.
    """

    name: str
    former: frozenset[IngressRule] = frozenset()
    others: Mapping[str, frozenset[IngressRule]] = field(default_factory=dict)

    def rules_in(self, group: SecurityGroup) -> set[IngressRule]:
        """Its own that no other has now, also those described as another's that this one had."""
        found = {rule for rule in group.rules if self._is_its(rule, _named(rule))}
        return found.difference(*self.others.values())

    def left_to_others(
        self, group: SecurityGroup, desired: frozenset[IngressRule]
    ) -> list[IngressRule]:
        """Those described as its own that only others have now, described as theirs."""
        own = {rule for rule in group.rules if _named(rule) == self.name} - desired
        some = (rules for rules in self.others.values() if not own.isdisjoint(rules))
        heirs = {rule: rule for rules in some for rule in rules}
        return sorted((heirs[rule] for rule in own if rule in heirs), key=astuple)

    def _is_its(self, rule: IngressRule, named: str) -> bool:
        return named == self.name or (named in self.others and rule in self.former)

    def is_in(self, group: SecurityGroup) -> bool:
        """Whether a group has rules that are its own, or described so."""
        return any(_named(rule) == self.name for rule in group.rules) or bool(self.rules_in(group))

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
    open_then = [*(group.rules - own), *desired]
    clients = {rule.source for rule in open_then if rule.description.startswith(CLIENT_RULE)}
    mtu = {packet_size_rule(cidr, MTU_RULE) for cidr in clients}
    shared = {rule for rule in group.rules if rule.description in (HEALTH_RULE, MTU_RULE)}
    checks = {rule for rule in shared if rule.description == HEALTH_RULE and clients}
    if left := owner.left_to_others(group, desired):
        yield IngressChange("Describe", group.id, tuple(left))
    yield from plan_ingress(group, desired | mtu | checks, own | shared)


def _named(rule: IngressRule) -> str:
    """The load balancer in a rule's description; empty where it is none's alone."""
    kind, _, name = rule.description.partition("=")
    return name if kind in (CLIENT_RULE, HEALTH_RULE) else ""
