"""However it is interrupted and whatever changes meanwhile, every node ends up with its routes."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_network

from hypothesis import given, settings
from hypothesis import strategies as st

from ccm.errors import CloudError, Refused
from ccm.model.cloud import Route
from ccm.model.node import Node
from tests.route.cloud import MACHINE, FakeRoutes, outage
from tests.route.nodes import SCHEME, network_condition, routed, with_condition, with_pod_cidrs
from tests.route.world import World, successor, world
from tests.unit.nodes import node, with_provider_id
from workers.route.networks import Network, is_managed
from workers.route.plan import (
    CREATED,
    NOT_CREATED,
    Action,
    AddRoute,
    DropRoute,
    Picture,
    SetCondition,
    is_right,
    plan,
    plan_orphans,
)
from workers.route.roster import Roster, claim_of
from workers.route.table import RouteTable

CLUSTER = (ip_network("10.244.0.0/16"), ip_network("fd00:244::/48"))
NAMES = ["a", "b", "c", "d"]
INSIDE = [*(f"10.244.{n}.0/24" for n in range(4)), "10.244.0.0/23", "fd00:244::/64", "banana"]
CIDRS = [*INSIDE, "10.9.0.0/24"]


def a_node(name: str, kind: str, cidrs: list[str]) -> Node:
    if kind == "new":
        return node(with_pod_cidrs(*cidrs), name=name)
    if kind == "foreign":
        return node(with_pod_cidrs(*cidrs), with_provider_id("other://1"), name=name)
    created = (with_condition("False", CREATED),) if kind == "created" else ()
    return routed(name, *cidrs, tweaks=created)


kinds = st.sampled_from(["ours", "ours", "ours", "created", "new", "foreign"])
some_nodes = st.lists(
    st.builds(
        a_node,
        st.sampled_from(NAMES),
        kinds,
        st.lists(st.sampled_from(CIDRS), max_size=2, unique=True),
    ),
    max_size=4,
    unique_by=lambda node: node.name,
)
tables = st.dictionaries(
    st.sampled_from([cidr for cidr in CIDRS if "/" in cidr]),
    st.sampled_from([*NAMES, "gone", "dead"]),
    max_size=6,
)


# The plan alone, with a performer of one line an action.


@dataclass
class Observed:
    """What is there: Nodes, and routes by network, as a cloud has them."""

    nodes: dict[str, Node]
    routes: dict[Network, Route] = field(default_factory=dict)

    def picture(self) -> Picture:
        """As it looks to a process that has just started."""
        return Picture(SCHEME, CLUSTER, Roster(self.nodes.values()), RouteTable(self._listed()))

    def _listed(self) -> Iterator[Route]:
        known = {n.provider_id.removeprefix(MACHINE) for n in self.nodes.values() if n.provider_id}
        for route in self.routes.values():
            target = route.node if route.node in known else ""
            yield Route(route.cidr, target, route.id, is_blackhole=route.node == "dead")

    def planned(self, key: object) -> Iterator[Action]:
        if isinstance(key, str):
            return plan(claim_of(self.nodes[key]), self.picture(), {})
        assert not isinstance(key, object.__class__)
        return plan_orphans(key, self.picture(), {})  # type: ignore[arg-type]

    def keys(self) -> list[object]:
        return [*sorted(self.nodes), *self.routes]

    def perform(self, name: object, action: Action) -> None:
        match action:
            case AddRoute(network):
                assert network not in self.routes, "a network was routed to two nodes"
                assert isinstance(name, str)
                self.routes[network] = Route(str(network), name, str(network))
            case DropRoute(known, _):
                assert is_managed(known.network, CLUSTER)
                assert not self.is_healthy(known.network), "a right route was deleted"
                del self.routes[known.network]
            case SetCondition(is_unavailable, message, _):
                status, reason = ("True", NOT_CREATED) if is_unavailable else ("False", CREATED)
                with_condition(status, reason, message)(self.nodes[str(name)].raw)

    def is_healthy(self, network: Network) -> bool:
        owner = self.nodes.get(self.routes[network].node)
        return owner is not None and network in claim_of(owner).networks

    def step(self, choose: Callable[[list[object]], object]) -> bool:
        """Perform the first action of some key; False when there is none left."""
        busy = [key for key in self.keys() if next(self.planned(key), None)]
        if not busy:
            return False
        key = choose(busy)
        self.perform(key, next(self.planned(key)))
        return True


def check_the_end(end: Observed, others: dict[Network, Route]) -> None:
    picture = end.picture()
    for claim in picture.roster:
        if not picture.may_route(claim):
            continue
        rivalled = {n for n in claim.networks if picture.roster.rivals(claim, n)}
        routed_right = {
            n
            for n in claim.networks
            if any(is_right(known.route, claim.node) for known in picture.table.on(n))
        }
        unmanaged = {n for n in claim.networks if n in others}
        assert set(claim.networks) - rivalled - unmanaged <= routed_right
        if claim.networks and not claim.unreadable:
            is_whole = routed_right == set(claim.networks)
            assert (network_condition(claim.node).get("status") == "False") == is_whole
    for network, route in others.items():
        assert end.routes[network] == route, "a route outside the cluster was touched"
    claimed = {n for claim in picture.roster for n in claim.networks}
    keeps = any(claim.unreadable for claim in picture.roster)
    left = {n for n in end.routes if is_managed(n, CLUSTER)}
    assert keeps or not end.nodes or left <= claimed, "garbage was left behind"


@given(some_nodes, some_nodes, tables, st.integers(0, 12), st.randoms(use_true_random=False))
@settings(max_examples=300)
def test_an_interrupted_plan_converges(
    before: list[Node],
    after: list[Node],
    there: dict[str, str],
    performed: int,
    random: "random.Random",  # type: ignore[name-defined] # noqa: F821
) -> None:
    """`performed` actions in any order, other Nodes, a new process: it ends as it should."""
    world = Observed({each.name: each for each in before})
    for cidr, target in there.items():
        world.routes[ip_network(cidr)] = Route(cidr, target, cidr)
    for _ in range(performed):
        world.step(random.choice)
    world.nodes |= {each.name: each for each in after}
    others = {n: route for n, route in world.routes.items() if not is_managed(n, CLUSTER)}
    for _ in range(100):
        busy = [key for key in world.keys() if next(world.planned(key), None)]
        blocked = [
            key
            for key in busy
            if isinstance(action := next(world.planned(key)), AddRoute)
            and action.network in world.routes
        ]
        if not set(busy) - set(blocked):
            break
        world.step(lambda keys, b=blocked: random.choice([k for k in keys if k not in b]))  # type: ignore[misc]
    else:
        raise AssertionError("it does not come to rest")
    check_the_end(world, others)
