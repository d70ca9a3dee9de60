"""What to do about the routes of one Node: a pure decision, performed elsewhere."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ccm.errors import CloudError, RetryAfter
from ccm.model.cloud import Route
from ccm.model.node import Node
from ccm.model.objects import Json, mapping, objects
from workers.route.networks import Network, is_managed
from workers.route.roster import Claim, Roster
from workers.route.table import Known, RouteTable

CONDITION = "NetworkUnavailable"
CREATED, NOT_CREATED = "RouteCreated", "NoRouteCreated"
CREATED_TEXT = "RouteController created a route"
NOT_CREATED_TEXT = "RouteController failed to create a route"
LONGEST_CAUSE = 500  # characters of somebody else's error text


@dataclass(frozen=True, slots=True)
class AddRoute:
    """Create the route to `network`."""

    network: Network


@dataclass(frozen=True, slots=True)
class DropRoute:
    """Delete a route; `why` is for people."""

    known: Known
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
Setbacks = Mapping[Network, CloudError]


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything that a decision looks at."""

    scheme: str
    cluster_cidrs: tuple[Network, ...]
    roster: Roster = field(default_factory=Roster)
    table: RouteTable = field(default_factory=RouteTable)

    def may_route(self, claim: Claim) -> bool:
        """Whether the Node is on a known machine of our cloud."""
        return bool(claim.node.provider_id) and not claim.node.is_foreign(self.scheme)


def plan(claim: Claim, picture: Picture, setbacks: Setbacks) -> Iterator[Action]:
    """Yield what gives a Node its routes and its condition; a network is freed before it moves.

    `setbacks` are networks whose change failed just now: nothing more is planned for them, and the
    condition tells. The condition comes after the routes; only before the last route of a Node
    without pod networks goes, the condition comes first. A network that another Node claims, too,
    stays as it is. A crash between two actions is safe: planning again from what is there then
    yields the remaining ones.
    """
    if not picture.may_route(claim):
        return
    has_networks = bool(claim.networks or claim.unreadable)
    if not has_networks and picture.table.to(claim.node.name):
        yield from condition(claim.node, False, ["the node has no pod CIDR"])
    for network in claim.networks:
        if network not in setbacks and not picture.roster.rivals(claim, network):
            yield from _route(claim, network, picture)
    if not claim.unreadable:
        yield from _stale(claim, picture, setbacks)
    if has_networks and not any(isinstance(setbacks.get(n), RetryAfter) for n in claim.networks):
        causes = problems(claim, picture, setbacks)
        told = [f"{cidr}: {cause}" for cidr, cause in causes.items()]
        yield from condition(claim.node, not causes, told)


def _route(claim: Claim, network: Network, picture: Picture) -> Iterator[Action]:
    """Free the network from every other route, then take it."""
    there = picture.table.on(network)
    for known in there:
        if not is_right(known.route, claim.node) and is_managed(network, picture.cluster_cidrs):
            yield DropRoute(known, _why(known.route, claim.node))
    if not any(is_right(known.route, claim.node) for known in there):
        yield AddRoute(network)


def _stale(claim: Claim, picture: Picture, setbacks: Setbacks) -> Iterator[Action]:
    """Take away the routes to a Node that does not claim their networks."""
    for known in picture.table.to(claim.node.name):
        is_done = known.network in claim.networks or known.network in setbacks
        if not is_done and is_managed(known.network, picture.cluster_cidrs):
            yield DropRoute(known, "not a network of its node")


def is_right(route: Route, node: Node) -> bool:
    """Whether a route to a network of `node` is as it should be.

    Addresses count only where the cloud tells them and the Node has some.
    """
    if route.is_blackhole or route.node != node.name:
        return False
    if route.addresses is None or not node.addresses:
        return True
    has = [(str(address.type), address.address) for address in route.addresses]
    projections = [(address.get("type"), address.get("address")) for address in node.addresses]
    return len(has) == len(projections) and set(has) == set(projections)


def _why(route: Route, node: Node) -> str:
    if route.is_blackhole:
        return "blackhole"
    return "other addresses" if route.node == node.name else "its network moved"


def problems(claim: Claim, picture: Picture, setbacks: Setbacks) -> dict[str, str]:
    """The pod CIDRs that have no route and will not get one now, and why."""
    causes = dict.fromkeys(claim.unreadable, "it is not a network")
    for network in claim.networks:
        if any(is_right(known.route, claim.node) for known in picture.table.on(network)):
            continue
        if rivals := picture.roster.rivals(claim, network):
            more = f" and {len(rivals) - 1} more" if len(rivals) > 1 else ""
            causes[str(network)] = f"it overlaps with a pod CIDR of node {rivals[0]}{more}"
        elif network in setbacks and not isinstance(setbacks[network], RetryAfter):
            causes[str(network)] = " ".join(str(setbacks[network]).split())[:LONGEST_CAUSE]
    return causes


def condition(node: Node, is_created: bool, causes: Sequence[str]) -> Iterator[SetCondition]:
    """Yield the condition unless the Node has it: same status and reason.

    A message is compared only where it names causes, so that it does not tell of an old one.
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


def is_missing(claim: Claim, picture: Picture) -> bool:
    """Whether a Node says that it has its routes, and there is none to one of its networks."""
    says_so = condition_of(claim.node).get("reason") == CREATED
    return says_so and not all(picture.table.on(network) for network in claim.networks)


def plan_orphans(network: Network, picture: Picture, setbacks: Setbacks) -> Iterator[DropRoute]:
    """Yield the deletion of what leads nowhere that a Node's own plan would come to."""
    if network in setbacks or not is_managed(network, picture.cluster_cidrs):
        return
    claimants = picture.roster.claimants(network)
    if any(picture.may_route(claim) for claim in claimants):
        return  # that Node's plan frees its network
    may_be_theirs = any(not claim.node.provider_id for claim in claimants)
    for known in picture.table.on(network):
        if known.route.is_blackhole:
            yield DropRoute(known, "blackhole")
        elif not may_be_theirs and picture.roster.get(known.route.node) is None:
            yield DropRoute(known, "no such node")
