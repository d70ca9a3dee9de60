"""What the nodes' security groups let in for network balancers, which send as their clients."""

from collections.abc import Iterable, Iterator

from ccm.providers.aws.balancers.network.state import Wanted
from ccm.providers.aws.config import SharedProbe
from ccm.providers.aws.security_groups import Group, Rule, RuleChange, changes

CLIENT = "kubernetes.io/rule/nlb/client"
HEALTH = "kubernetes.io/rule/nlb/health"
MTU = "kubernetes.io/rule/nlb/mtu"


def node_rules(
    wanted: Wanted, ranges: Iterable[str], cidrs: Iterable[str], probe: SharedProbe | None
) -> frozenset[Rule]:
    """Clients may reach the node ports from `ranges`, health checks come from the subnets."""
    return frozenset(_node_rules(wanted, tuple(ranges), tuple(cidrs), probe))


def _node_rules(
    wanted: Wanted, ranges: tuple[str, ...], cidrs: tuple[str, ...], probe: SharedProbe | None
) -> Iterator[Rule]:
    name = wanted.balancer.name
    for group in wanted.groups.values():
        for protocol in _protocols(group.protocol):
            for cidr in ranges:
                yield Rule(protocol, group.port, group.port, cidr, f"{CLIENT}={name}")
        port = group.port if group.check.port == "traffic-port" else int(group.check.port)
        is_shared = probe is not None and port == probe.port
        for cidr in cidrs:
            yield Rule("tcp", port, port, cidr, HEALTH if is_shared else f"{HEALTH}={name}")


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
