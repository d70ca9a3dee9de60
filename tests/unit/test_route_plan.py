"""What is planned for the routes of one Node, by what is there."""

from ipaddress import ip_network

import pytest

from ccm.errors import CloudError, RetryAfter
from ccm.model.cloud import Route
from ccm.model.objects import Node
from tests.support.nodes import (
    PROVIDER_IDS,
    addresses,
    created,
    node,
    routed,
    with_addresses,
    with_condition,
    with_pod_cidrs,
    with_provider_id,
)
from workers.route.plan import (
    CREATED,
    CREATED_TEXT,
    NOT_CREATED,
    NOT_CREATED_TEXT,
    Action,
    AddRoute,
    DropRoute,
    RouteState,
    is_missing,
    plan,
    plan_orphans,
)
from workers.route.pod_cidrs import PodCidrIndex, PodCidrLimits
from workers.route.table import RouteTable

CLUSTER = PodCidrLimits((ip_network("10.244.0.0/16"),))
X, Y = "10.244.1.0/24", "10.244.2.0/24"
NEW = created("2030-01-01T00:00:00Z")
IS_CREATED = with_condition("False", CREATED)
A = routed("a", X, tweaks=(IS_CREATED, with_addresses("InternalIP 10.0.0.1")))
ABROAD = node(with_pod_cidrs("10.244.130.0/24"), with_provider_id("x://1"), name="abroad")
NEWCOMER = node(with_pod_cidrs("10.244.130.0/24"))
WIDE, NARROW = "10.244.128.0/17", "10.244.130.128/25"
MADE, FAILED = (
    f"is available, a turn: {CREATED_TEXT}",
    f"is unavailable, a turn: {NOT_CREATED_TEXT}",
)


def new_state(nodes: list[Node], routes: list[Route]) -> RouteState:
    """On the machine of the Node `shared` is another one."""
    why_not = {"shared": "Node other has the same machine"}
    index = PodCidrIndex(CLUSTER, nodes)
    return RouteState(PROVIDER_IDS, index, lambda name: why_not.get(name, ""), RouteTable(routes))


def shown(action: Action) -> str:
    match action:
        case AddRoute(network):
            return f"add {network}"
        case DropRoute(known, why):
            return f"drop {known.network}: {why}"
    state = "unavailable" if action.is_unavailable else "available"
    return f"is {state}{', a turn' if action.is_turn else ''}: {action.message}"


@pytest.mark.parametrize(
    ("nodes", "routes", "failures", "expected"),
    [
        pytest.param([routed("a", X)], [], {}, [f"add {X}", MADE], id="new"),
        pytest.param([A], [Route(X, "a")], {}, [], id="as-it-should-be"),
        pytest.param([node(with_pod_cidrs(X), name="a")], [], {}, [], id="no-provider-id"),
        pytest.param(
            [node(with_pod_cidrs(X), with_provider_id("x://1"))], [], {}, [], id="foreign"
        ),
        pytest.param([routed("shared", X)], [], {}, [], id="not-alone-on-its-machine"),
        pytest.param(
            [A],
            [Route(X, "a", is_blackhole=True)],
            {},
            [f"drop {X}: blackhole", f"add {X}"],
            id="blackhole",
        ),
        pytest.param(
            [A], [Route(X, "b")], {}, [f"drop {X}: its network moved", f"add {X}"], id="moved"
        ),
        pytest.param(
            [A], [Route(X, "a", addresses=addresses("InternalIP 10.0.0.1"))], {}, [], id="address"
        ),
        *(
            pytest.param(
                [A],
                [Route(X, "a", addresses=addresses(*others))],
                {},
                [f"drop {X}: other addresses", f"add {X}"],
                id=f"{len(others)}-other-addresses",
            )
            for others in (["InternalIP 10.0.0.2"], ["InternalIP 10.0.0.1"] * 2)
        ),
        pytest.param(
            [A],
            [Route(X, "a"), Route(Y, "a")],
            {},
            [f"drop {Y}: not a network of its node"],
            id="another-network",
        ),
        pytest.param(
            [routed("a", tweaks=(IS_CREATED,))],
            [Route(X, "a")],
            {},
            [f"{FAILED}: the node has no pod CIDR", f"drop {X}: not a network of its node"],
            id="no-network",
        ),
        pytest.param(
            [routed("a", X, "banana", tweaks=(IS_CREATED,))],
            [],
            {X: CloudError("full")},
            [f"{FAILED}: banana: it is not a network; {X}: full"],
            id="it-fails",
        ),
        pytest.param(
            [routed("a", X, tweaks=(with_condition("True", NOT_CREATED, "of before"),))],
            [],
            {X: CloudError("full")},
            [f"is unavailable: {NOT_CREATED_TEXT}: {X}: full"],
            id="it-fails-for-another-reason",
        ),
        pytest.param([routed("a", X)], [], {X: RetryAfter("busy", 1.0)}, [], id="it-has-to-wait"),
        pytest.param(
            [routed("a", X, "banana", tweaks=(IS_CREATED,))],
            [Route(X, "a"), Route(Y, "a")],
            {},
            [f"{FAILED}: banana: it is not a network"],
            id="what-cannot-be-read-may-be-the-other-network",
        ),
        *(
            pytest.param(
                [routed("a", X, tweaks=(NEW,)), *(routed(name, X) for name in owners)],
                [],
                {},
                [f"{FAILED}: {X}: it overlaps with a pod CIDR of node b{more}"],
                id=f"taken-by-{owners}",
            )
            for owners, more in (("b", ""), ("bc", " and 1 more"))
        ),
        pytest.param(
            [A, ABROAD],
            [Route(X, "a"), Route(WIDE, "a")],
            {},
            [],
            id="its-way-to-another-clouds-pods",
        ),
        pytest.param(
            [routed("a", "10.9.0.0/24", tweaks=(IS_CREATED,))],
            [],
            {},
            [f"{FAILED}: 10.9.0.0/24: it is not inside --cluster-cidr, 10.244.0.0/16"],
            id="outside",
        ),
    ],
)
def test_a_node_gets_its_routes_and_its_condition(
    nodes: list[Node], routes: list[Route], failures: dict[str, CloudError], expected: list[str]
) -> None:
    """That of the first Node."""
    state = new_state(nodes, routes)
    [cidrs, *_] = state.pod_cidrs
    failed = {ip_network(network): error for network, error in failures.items()}
    assert [shown(action) for action in plan(cidrs, state, failed)] == expected


@pytest.mark.parametrize(
    ("nodes", "route", "expected"),
    [
        pytest.param([], Route(X, "gone"), [f"drop {X}: no such node"], id="no-node"),
        pytest.param([], Route(X, ""), [f"drop {X}: no such node"], id="no-target"),
        pytest.param([], Route(X, "", is_blackhole=True), [f"drop {X}: blackhole"], id="blackhole"),
        pytest.param([], Route("10.9.0.0/24", "gone"), [], id="not-ours"),
        pytest.param([A], Route(X, "gone"), [], id="left-to-the-nodes-own-plan"),
        pytest.param([A], Route(Y, "a"), [], id="left-to-the-plan-of-its-target"),
        pytest.param([node(with_pod_cidrs(X))], Route(X, ""), [], id="perhaps-a-new-nodes"),
        pytest.param([ABROAD], Route(WIDE, "vpn"), [], id="to-another-clouds-pods"),
        pytest.param([ABROAD], Route(NARROW, "vpn"), [], id="to-a-part-of-another-clouds-pods"),
        pytest.param([ABROAD], Route(Y, "vpn"), [f"drop {Y}: no such node"], id="beside-them"),
        pytest.param([NEWCOMER], Route(WIDE, ""), [], id="to-nobody-knows-which"),
        pytest.param(
            [ABROAD],
            Route(WIDE, "gone", is_marked=True),
            [f"drop {WIDE}: no such node"],
            id="marked-as-ours",
        ),
    ],
)
def test_a_route_that_leads_nowhere_is_dropped(
    nodes: list[Node], route: Route, expected: list[str]
) -> None:
    state, network = new_state(nodes, [route]), ip_network(route.cidr)
    assert [shown(action) for action in plan_orphans(network, state, {})] == expected
    assert [*plan_orphans(network, state, {network: CloudError("no")})] == []


@pytest.mark.parametrize(
    ("tweaks", "routes", "former", "expected"),
    [
        pytest.param((IS_CREATED,), [], None, True, id="in-a-new-process"),
        pytest.param((IS_CREATED,), [], [Route(X, "a")], True, id="it-was-there"),
        pytest.param((IS_CREATED,), [], [Route(Y, "a")], False, id="it-never-was"),
        pytest.param((IS_CREATED,), [Route(X, "a")], None, False, id="it-is-there"),
        pytest.param((), [], [Route(X, "a")], False, id="it-says-nothing"),
    ],
)
def test_a_node_that_says_it_has_a_route_may_miss_it(
    tweaks: tuple[()], routes: list[Route], former: list[Route] | None, expected: bool
) -> None:
    state = new_state([routed("a", X, tweaks=tweaks)], routes)
    [cidrs] = state.pod_cidrs
    known = None if former is None else RouteTable(former)
    assert is_missing(cidrs, state, known) == expected


def test_routes_without_number_to_a_node_that_is_left_out_are_not_all_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """3,000 of them took four seconds of one turn, and 5,000 ended the worker."""
    routes = [Route(f"10.244.{at}.0/24", "shared", f"r-{at}") for at in range(2, 200)]
    state, asked = new_state([A, routed("shared", X)], routes), list[str]()
    monkeypatch.setattr(RouteTable, "to", lambda self, name: asked.append(name))
    dropped = [action for item in state.table for action in plan_orphans(item.network, state, {})]
    assert len(dropped) == len(routes)
    assert not asked
