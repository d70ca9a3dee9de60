"""What the nodes' security groups let in for network balancers, which send as their clients."""

from collections.abc import Collection, Iterable, Iterator

from ccm.model.service import HealthCheck
from ccm.providers.aws.balancers.network.state import Wanted
from ccm.providers.aws.security_groups import Group, Rule, RuleChange, changes

CLIENT = "kubernetes.io/rule/nlb/client"
HEALTH = "kubernetes.io/rule/nlb/health"
MTU = "kubernetes.io/rule/nlb/mtu"


def node_rules(
    wanted: Wanted, ranges: Iterable[str], cidrs: Iterable[str], node_check: HealthCheck | None
) -> frozenset[Rule]:
    """Clients may reach the node ports from `ranges`, health checks come from the subnets."""
    own_ports = {group.port for group in wanted.groups.values()}
    if node_check:
        own_ports.add(node_check.port)
    return frozenset(_node_rules(wanted, tuple(ranges), tuple(cidrs), own_ports))


def _node_rules(
    wanted: Wanted, ranges: tuple[str, ...], cidrs: tuple[str, ...], own_ports: Collection[int]
) -> Iterator[Rule]:
    """The rules; a port that is not only this Service's may be checked for others as well."""
    name = wanted.balancer.name
    for group in wanted.groups.values():
        for protocol in _protocols(group.protocol):
            for cidr in ranges:
                yield Rule(protocol, group.port, group.port, cidr, f"{CLIENT}={name}")
        port = group.port if group.check.port == "traffic-port" else int(group.check.port)
        for cidr in cidrs:
            note = f"{HEALTH}={name}" if port in own_ports else HEALTH
            yield Rule("tcp", port, port, cidr, note)


def _protocols(protocol: str) -> tuple[str, ...]:
    return {"TCP_UDP": ("tcp", "udp"), "UDP": ("udp",)}.get(protocol, ("tcp",))


def rule_changes(group: Group, wanted: frozenset[Rule], name: str) -> Iterator[RuleChange]:
    """What one balancer needs changed in a group that serves several.

    Messages about the size of packets may come from wherever clients may, and a health check that
    all balancers share stays as long as any of them has clients. AWS has one rule for both.
    """
    own = {rule for rule in group.rules if rule.note in (f"{CLIENT}={name}", f"{HEALTH}={name}")}
    left = [*(group.rules - own), *wanted]
    clients = {rule.source for rule in left if rule.note.startswith(CLIENT)}
    mtu = {Rule("icmp", 3, 4, cidr, MTU) for cidr in clients if ":" not in cidr}
    shared = {rule for rule in group.rules if rule.note in (HEALTH, MTU)}
    probes = {rule for rule in shared if rule.note == HEALTH and clients}
    yield from changes(group, wanted | mtu | probes, own | shared)


def concerns(group: Group, name: str) -> bool:
    """Whether the group has rules of this balancer."""
    return any(rule.note in (f"{CLIENT}={name}", f"{HEALTH}={name}") for rule in group.rules)
