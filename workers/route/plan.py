"""What to do about the routes of one Node: a pure decision, performed elsewhere."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ccm.errors import CloudError, RetryAfter
from ccm.model.cloud import Network, Route
from ccm.model.objects import Json, Node, mapping, objects
from workers.route.pod_cidrs import PodCidrIndex, PodCidrs, is_managed
from workers.route.table import KnownRoute, RouteTable

CONDITION = "NetworkUnavailable"
CREATED, NOT_CREATED = "RouteCreated", "NoRouteCreated"
CREATED_TEXT = "RouteController created a route"
NOT_CREATED_TEXT = "RouteController failed to create a route"


@dataclass(frozen=True, slots=True)
class AddRoute:
    """Create the route to `network`, a pod CIDR of the Node."""

    network: Network


@dataclass(frozen=True, slots=True)
class DropRoute:
    """Delete a route; `why` is for people."""

    known: KnownRoute
    why: str

    @property
    def network(self) -> Network:
        return self.known.network


@dataclass(frozen=True, slots=True)
class SetCondition:
    """Say on the Node whether its network is unavailable; `is_turn` when that was otherwise."""

    is_unavailable: bool
    message: str
    is_turn: bool


Action = AddRoute | DropRoute | SetCondition
Failures = Mapping[Network, CloudError]


@dataclass(frozen=True, slots=True)
class RouteState:
    """All that a decision depends on."""

    provider_ids: re.Pattern[str]
    pod_cidrs: PodCidrIndex
    why_not: Callable[[str], str]  # nothing may lead to a Node's machine; or empty
    table: RouteTable = field(default_factory=RouteTable)

    def may_route(self, cidrs: PodCidrs) -> bool:
        """Whether the Node is on a known machine of our cluster, which no other Node has."""
        node = cidrs.node
        is_ours = bool(node.provider_id) and not node.is_foreign(self.provider_ids)
        return is_ours and not self.why_not(node.name)

    def taken_by(self, cidrs: PodCidrs, network: Network) -> list[str]:
        """As the index has it, by the routes that are there."""
        return self.pod_cidrs.taken_by(cidrs, network, self.table.leads)

    def may_delete(self, known: KnownRoute) -> bool:
        """Whether the route carries our mark, or leads to where only our routes do.

        What has something in common with a pod CIDR of another cloud's Node, or of one of which
        the cloud is unknown, may be a person's way to it.
        """
        is_ours = is_managed(known.network, self.pod_cidrs.limits.cluster_cidrs)
        return known.route.is_marked or (is_ours and not self._may_lead_abroad(known))

    def _may_lead_abroad(self, known: KnownRoute) -> bool:
        return not known.route.is_blackhole and any(
            not self.provider_ids.fullmatch(node.provider_id)
            for node in self.pod_cidrs.nodes_on(known.network)
        )


def plan(cidrs: PodCidrs, state: RouteState, failures: Failures) -> Iterator[Action]:
    """Yield what gives a Node its routes and its condition; a network is freed before it moves.

    `failures` are networks whose change failed just now: nothing more is planned for them, and the
    condition shows it. The condition comes after the routes; only before the last route of a Node
    without pod networks goes, the condition comes first. A network that another Node has by right
    is not routed here. A crash between two actions is safe: planning again from what is there then
    yields the remaining ones.
    """
    if not state.may_route(cidrs):
        return
    if cidrs.is_empty and state.table.to(cidrs.node.name):
        yield from condition(cidrs.node, False, ["the node has no pod CIDR"])
    own = [each for each in cidrs.networks if not state.taken_by(cidrs, each)]
    for network in own:
        if network not in failures:
            yield from _route(cidrs, network, state)
    yield from _stale(cidrs, {*own, *failures}, state)
    if not cidrs.is_empty and not any(
        isinstance(failures.get(n), RetryAfter) for n in cidrs.networks
    ):
        causes = problems(cidrs, state, failures)
        reported = [f"{cidr}: {cause}" for cidr, cause in causes.items()]
        yield from condition(cidrs.node, not causes, reported)


def _route(cidrs: PodCidrs, network: Network, state: RouteState) -> Iterator[Action]:
    """Free the network from every other route, then take it."""
    current = state.table.on(network)
    for known in current:
        if not is_right(known.route, cidrs.node):
            yield DropRoute(known, _why(known.route, cidrs.node))
    if not any(is_right(known.route, cidrs.node) for known in current):
        yield AddRoute(network)


def _stale(cidrs: PodCidrs, kept: Collection[Network], state: RouteState) -> Iterator[Action]:
    """Take away the routes to a Node that does not have their networks, or not by right."""
    lost = {*cidrs.networks, *_not_of(cidrs, state)} - {*kept}
    for known in state.table.to(cidrs.node.name):
        if known.network in lost and state.may_delete(known):
            yield DropRoute(known, "not a network of its node")


def _not_of(cidrs: PodCidrs, state: RouteState) -> set[Network]:
    """The networks of routes to a Node that it does not have.

    What cannot be read may be the claim to one of them each: then none.
    """
    others = {known.network for known in state.table.to(cidrs.node.name)} - {*cidrs.networks}
    return others if len(others) > len(cidrs.unreadable) else set()


def is_right(route: Route, node: Node) -> bool:
    """Whether a route to a network of `node` is as it should be.

    Addresses count only where the cloud reports them and the Node has some.
    """
    if route.is_blackhole or route.node != node.name:
        return False
    if route.addresses is None or not node.addresses:
        return True
    has = [(str(address.type), address.address) for address in route.addresses]
    wants = [(address.get("type"), address.get("address")) for address in node.addresses]
    return len(has) == len(wants) and set(has) == set(wants)


def _why(route: Route, node: Node) -> str:
    if route.is_blackhole:
        return "blackhole"
    return "other addresses" if route.node == node.name else "its network moved"


def problems(cidrs: PodCidrs, state: RouteState, failures: Failures) -> dict[str, str]:
    """The pod CIDRs that have no route and will not get one now, and why."""
    causes = dict.fromkeys(cidrs.unreadable, "it is not a network")
    for network in (*cidrs.networks, *cidrs.refused):
        if any(is_right(known.route, cidrs.node) for known in state.table.on(network)):
            continue
        if violation := cidrs.refused.get(network):
            causes[str(network)] = violation
        elif taken := state.taken_by(cidrs, network):
            more = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
            causes[str(network)] = f"it overlaps with a pod CIDR of node {taken[0]}{more}"
        elif network in failures and not isinstance(failures[network], RetryAfter):
            causes[str(network)] = str(failures[network])
    return causes


def condition(node: Node, is_created: bool, causes: Sequence[str]) -> Iterator[SetCondition]:
    """Yield the condition unless the Node has it: same status and reason.

    A message is compared only where it names causes, so that it does not name an old one.
    """
    seen = condition_of(node)
    status, reason = ("False", CREATED) if is_created else ("True", NOT_CREATED)
    message = CREATED_TEXT if is_created else NOT_CREATED_TEXT
    if causes:
        message += ": " + "; ".join(causes)
    is_same = (seen.get("status"), seen.get("reason")) == (status, reason)
    if not is_same or (causes and seen.get("message") != message):
        yield SetCondition(not is_created, message, is_turn=seen.get("status") != status)


def condition_of(node: Node) -> Json:
    """`NetworkUnavailable` as the Node has it; empty when it has none."""
    conditions = objects(mapping(node.raw.get("status")).get("conditions"))
    return next((each for each in conditions if each.get("type") == CONDITION), {})


def is_missing(cidrs: PodCidrs, state: RouteState, former: RouteTable | None) -> bool:
    """Whether a Node says that it has its routes, and there is none to one of its networks.

    One that never had any says so for ever, if its kubelet likes: what the `former` table has not
    is not missed. Without one, in a new process, there is nothing else to go by.
    """
    says_so = state.may_route(cidrs) and condition_of(cidrs.node).get("reason") == CREATED
    return says_so and any(
        not state.table.on(network) and (former is None or former.on(network))
        for network in cidrs.networks
    )


def plan_orphans(network: Network, state: RouteState, failures: Failures) -> Iterator[DropRoute]:
    """Yield the deletion of what leads nowhere that a Node's own plan would come to."""
    if network in failures:
        return
    nodes_with = [
        cidrs for cidrs in state.pod_cidrs.nodes_with(network) if not state.taken_by(cidrs, network)
    ]
    if any(state.may_route(cidrs) for cidrs in nodes_with):
        return  # that Node's plan frees its network
    may_be_theirs = any(not cidrs.node.provider_id for cidrs in nodes_with)
    for known in filter(state.may_delete, state.table.on(network)):
        target = state.pod_cidrs.get(known.route.node)
        if known.route.is_blackhole:
            yield DropRoute(known, "blackhole")
        elif target is None and not may_be_theirs:
            yield DropRoute(known, "no such node")
        elif target and not state.may_route(target) and _is_no_ones(network, target, state):
            yield DropRoute(known, "no node has its network")


def _is_no_ones(network: Network, target: PodCidrs, state: RouteState) -> bool:
    """Whether no Node has a network, nor may that have it to which a route leads."""
    if state.pod_cidrs.nodes_with(network):
        return False
    return not target.unreadable or network in _not_of(target, state)
