"""However a plan is interrupted and whatever changes meanwhile, it ends with the right routes."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_network

from hypothesis import example, given
from hypothesis import strategies as st

from ccm.model.cloud import Network, Route
from ccm.model.objects import Node
from tests.support.nodes import (
    PROVIDER_IDS,
    SCHEME,
    network_condition,
    node,
    routed,
    with_condition,
    with_pod_cidrs,
    with_provider_id,
)
from tests.support.properties import examples
from workers.route.plan import (
    CREATED,
    NOT_CREATED,
    Action,
    AddRoute,
    DropRoute,
    RouteState,
    SetCondition,
    plan,
    plan_orphans,
)
from workers.route.pod_cidrs import (
    PodCidrIndex,
    PodCidrLimits,
    PodCidrs,
    is_managed,
)
from workers.route.table import RouteTable

CLUSTER = (ip_network("10.244.0.0/16"), ip_network("fd00:244::/48"))
NAMES = ["a", "b", "c", "d"]
NETWORKS = [*(f"10.244.{n}.0/24" for n in range(4)), "10.244.0.0/23", "fd00:244::/64"]
OUTSIDE = "10.9.0.0/24"


def a_node(name: str, kind: str, cidrs: list[str]) -> Node:
    if kind == "new":
        return node(with_pod_cidrs(*cidrs), name=name)
    if kind == "foreign":
        return node(with_pod_cidrs(*cidrs), with_provider_id("other://1"), name=name)
    created = (with_condition("False", CREATED),) if kind == "created" else ()
    return routed(name, *cidrs, tweaks=created)


some_nodes = st.lists(
    st.builds(
        a_node,
        st.sampled_from(NAMES),
        st.sampled_from(["ours", "ours", "created", "new", "foreign"]),
        st.lists(st.sampled_from([*NETWORKS, OUTSIDE, "banana"]), max_size=2, unique=True),
    ),
    max_size=4,
    unique_by=lambda node: node.name,
)
tables = st.dictionaries(
    st.sampled_from([*NETWORKS, OUTSIDE]), st.sampled_from([*NAMES, "gone", "dead"]), max_size=6
)


@dataclass
class Observed:
    """What is there: Nodes, and in the cloud a machine (of the Node's name) for each network."""

    nodes: dict[str, Node]
    routes: dict[Network, str] = field(default_factory=dict)
    are_marked: bool = False

    def state(self) -> RouteState:
        """As it looks to a process that has just started."""
        names = {each.provider_id: each.name for each in self.nodes.values() if each.provider_id}
        listed = [
            Route(
                str(network),
                names.get(f"{SCHEME}://{machine}", ""),
                machine,
                is_blackhole=machine == "dead",
                is_marked=self.are_marked,
            )
            for network, machine in self.routes.items()
        ]
        pod_cidrs = PodCidrIndex(PodCidrLimits(CLUSTER), self.nodes.values())
        return RouteState(PROVIDER_IDS, pod_cidrs, lambda name: "", RouteTable(listed))

    def pending(self) -> list[tuple[str, Action]]:
        """The next action of every key that has one."""
        state = self.state()
        plans: list[tuple[str, Iterator[Action]]] = [
            (cidrs.node.name, plan(cidrs, state, {})) for cidrs in state.pod_cidrs
        ]
        if self.nodes:
            plans += [("", plan_orphans(network, state, {})) for network in self.routes]
        return [(key, action) for key, actions in plans if (action := next(actions, None))]

    def perform(self, name: str, action: Action) -> None:
        match action:
            case AddRoute(network):
                assert network not in self.routes, "a network was routed to two nodes"
                assert network != ip_network(OUTSIDE), "a route outside the cluster was made"
                self.routes[network] = name
            case DropRoute(known, _):
                is_ours = self.are_marked or is_managed(known.network, CLUSTER)
                assert is_ours, "a route outside the cluster was deleted"
                assert not self.is_healthy(known.network), "a right route was deleted"
                del self.routes[known.network]
            case SetCondition(is_unavailable, message, _):
                status, reason = ("True", NOT_CREATED) if is_unavailable else ("False", CREATED)
                with_condition(status, reason, message)(self.nodes[name].raw)

    def is_healthy(self, network: Network) -> bool:
        """Whether the route leads to a machine whose Node, initialized or not, has it by right."""
        state = self.state()
        owner = state.pod_cidrs.get(self.routes[network])
        if owner is None or owner.node.is_foreign(PROVIDER_IDS) or network not in owner.networks:
            return False
        return not state.taken_by(owner, network)


@given(some_nodes, some_nodes, tables, st.booleans(), st.integers(0, 12), st.integers())
@example([a_node("b", "ours", NETWORKS[:1])], [a_node("a", "new", NETWORKS[:1])], {}, False, 1, 0)
@examples(400)
def test_an_interrupted_plan_converges(
    before: list[Node],
    later: list[Node],
    there: dict[str, str],
    are_marked: bool,
    performed: int,
    seed: int,
) -> None:
    """Some actions in any order, then other Nodes and a new process."""
    choose = random.Random(seed).choice
    world = Observed({each.name: each for each in before}, are_marked=are_marked)
    world.routes = {ip_network(cidr): machine for cidr, machine in there.items()}
    for _ in range(performed):
        if pending := world.pending():
            world.perform(*choose(pending))
    world.nodes |= {each.name: each for each in later}
    for _ in range(50):
        if not (pending := world.pending()):
            break
        world.perform(*choose(pending))
    assert world.pending() == [], "it does not come to rest"
    check(world)


def test_a_network_lost_to_another_node_goes_although_a_claim_cannot_be_read() -> None:
    wide, narrow = ip_network("10.244.0.0/23"), ["10.244.0.0/24", "10.244.1.0/24"]
    nodes = [a_node("a", "ours", [str(wide), "banana"]), a_node("b", "ours", narrow)]
    world = Observed({each.name: each for each in nodes}, {wide: "a"})
    while pending := world.pending():
        world.perform(*pending[0])
    assert world.routes == dict.fromkeys(map(ip_network, narrow), "b")


def check(end: Observed) -> None:
    state = end.state()
    ours = [cidrs for cidrs in state.pod_cidrs if state.may_route(cidrs)]
    for cidrs in ours:
        has = {network for network in cidrs.networks if end.routes.get(network) == cidrs.node.name}
        by_right = {n for n in cidrs.networks if not state.taken_by(cidrs, n)}
        assert by_right <= has
        assert all(may_lead_abroad(state, network) for network in has - by_right)
        if not cidrs.is_empty:
            refused = {n for n in cidrs.refused if end.routes.get(n) != cidrs.node.name}
            is_whole = has == set(cidrs.networks) and not (cidrs.unreadable or refused)
            assert (network_condition(cidrs.node)["status"] == "False") == is_whole
    for network in end.routes:
        if end.are_marked or is_managed(network, CLUSTER):
            assert not end.nodes or has_a_reason(end, network, state), "garbage is left"


def has_a_reason(end: Observed, network: Network, state: RouteState) -> bool:
    """A Node claims it or, of another cloud, a part; or its target's claim cannot be read."""
    owner: PodCidrs | None = state.pod_cidrs.get(end.routes[network])
    is_claimed = state.pod_cidrs.nodes_with(network) or may_lead_abroad(state, network)
    return bool(is_claimed or (owner and owner.unreadable))


def may_lead_abroad(state: RouteState, network: Network) -> bool:
    """Whether a Node of another cloud, or of none yet, claims a part of it."""
    on_it = state.pod_cidrs.nodes_on(network)
    return any(not PROVIDER_IDS.fullmatch(node.provider_id) for node in on_it)
