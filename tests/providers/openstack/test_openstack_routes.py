"""Routes on a real router: whose they are, what they cost, and that others' stay."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.harness import node
from ccm.errors import CloudError, Refused
from ccm.model.cloud import Route
from ccm.model.objects import Json, Node
from ccm.providers.openstack.routes import GROUP_PREFIX
from tests.labs.openstack.lab import Lab
from tests.providers.openstack.started import Started
from tests.support.running import long, until

pytestmark = [long, pytest.mark.timeout(300)]

CIDRS = {"node-1": "10.244.1.0/24", "node-2": "10.244.2.0/24", "node-3": "10.244.3.0/24"}
APPLIANCE = {"destination": "10.244.200.0/24", "nexthop": "10.0.250.250"}
"""What an operator made by hand: inside of the pod networks, to what is no port of Neutron's."""


class Router:
    """The lab's router and its ports, past the provider."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.path = lab, f"/routers/{lab.world['router']}"

    @property
    def routes(self) -> dict[str, str]:
        listed = self.lab.get("neutron", self.path)["routes"]
        return {one["destination"]: one["nexthop"] for one in listed}

    def set_routes(self, *routes: Json) -> None:
        self.lab.call("neutron", "PUT", self.path, {"router": {"routes": list(routes)}})

    def port(self, name: str) -> Json:
        query = f"device_id={self.lab.world['servers'][name]}"
        (port, *_) = self.lab.get("neutron", f"/ports?{query}")
        return dict(port)

    def address(self, name: str) -> str:
        return str(self.port(name)["fixed_ips"][0]["ip_address"])

    def pairs(self, name: str) -> list[str]:
        return [pair["ip_address"] for pair in self.port(name)["allowed_address_pairs"]]

    def set_pairs(self, name: str, *cidrs: str) -> None:
        body = {"port": {"allowed_address_pairs": [{"ip_address": cidr} for cidr in cidrs]}}
        self.lab.call("neutron", "PUT", f"/ports/{self.port(name)['id']}", body)

    def groups(self) -> list[Json]:
        listed = self.lab.get("neutron", "/address-groups")
        return [one for one in listed if one["name"].startswith(GROUP_PREFIX)]

    def clear(self) -> None:
        self.set_routes()
        for group in self.groups():
            self.lab.delete("neutron", f"/address-groups/{group['id']}")
        for name in self.lab.world["servers"]:
            self.set_pairs(name)


@pytest.fixture
def router(lab: Lab) -> Iterator[Router]:
    made = Router(lab)
    made.clear()
    yield made
    made.clear()


@pytest.fixture
def nodes(lab: Lab) -> list[Node]:
    found = []
    for name, cidr in CIDRS.items():
        found.append(node(name, f"openstack:///{lab.world['servers'][name]}"))
        found[-1].raw["spec"]["podCIDRs"] = [cidr]
    return found


async def routes_of(cloud: Started, nodes: Sequence[Node]) -> list[Route]:
    assert cloud.routes
    return list(await invoke(cloud.routes.list, nodes))


async def create_all(cloud: Started, nodes: Sequence[Node]) -> None:
    assert cloud.routes
    create = cloud.routes.create
    await asyncio.gather(*(invoke(create, one, one.pod_cidrs[0]) for one in nodes))


async def test_routes_cost_few_calls_and_ports_let_pods_out(
    cloud: Started, router: Router, nodes: list[Node]
) -> None:
    """OS85: two calls for a Node's port, and some for all of them."""
    router.set_routes(APPLIANCE)
    assert await routes_of(cloud, nodes) == []
    await create_all(cloud, nodes)
    wanted = {cidr: router.address(name) for name, cidr in CIDRS.items()}
    assert router.routes == wanted | {APPLIANCE["destination"]: APPLIANCE["nexthop"]}
    assert {name: router.pairs(name) for name in CIDRS} == {n: [c] for n, c in CIDRS.items()}
    assert len(cloud.operations) <= 1 + 3 + 2 * 4 + 2 * len(nodes)
    listed = await routes_of(cloud, nodes)
    assert {route.node: route.cidr for route in listed} == CIDRS
    assert not any(route.is_blackhole for route in listed)


async def test_a_server_of_another_region_is_not_behind_this_router(
    cloud: Started, lab: Lab, router: Router, nodes: list[Node]
) -> None:
    """OS21: here one of that ID is there, too, so that a kubelet could have its route."""
    assert cloud.routes
    here, elsewhere = nodes[:2]
    server = lab.world["servers"]["node-1"]
    here.raw["spec"]["providerID"] = f"openstack://{lab.world['region']}/{server}"
    elsewhere.raw["spec"]["providerID"] = f"openstack://elsewhere/{server}"
    assert await routes_of(cloud, nodes) == []
    with pytest.raises(Refused, match="names no server here"):
        await invoke(cloud.routes.create, elsewhere, CIDRS["node-2"])
    await invoke(cloud.routes.create, here, CIDRS["node-1"])
    assert router.routes == {CIDRS["node-1"]: router.address("node-1")}
    (listed,) = await routes_of(cloud, nodes)
    assert listed.node == "node-1"


async def test_what_was_made_by_hand_stays_when_ours_go(
    cloud: Started, router: Router, nodes: list[Node]
) -> None:
    """OS86, OS87, OS101, OS106."""
    router.set_routes(APPLIANCE)
    await create_all(cloud, nodes)
    assert cloud.routes
    for route in await routes_of(cloud, nodes):
        await invoke(cloud.routes.delete, route)
    assert router.routes == {APPLIANCE["destination"]: APPLIANCE["nexthop"]}
    assert not any(router.pairs(name) for name in CIDRS)
    assert router.groups() == []


async def test_a_pair_that_was_removed_is_set_again(
    cloud: Started, router: Router, nodes: list[Node]
) -> None:
    """OS88: without touching the pairs that someone else set."""
    await create_all(cloud, nodes)
    router.set_pairs("node-1", "192.0.2.7")
    listed = await routes_of(cloud, nodes)
    assert "node-1" not in {route.node for route in listed}
    await create_all(cloud, nodes[:1])
    assert sorted(router.pairs("node-1")) == [CIDRS["node-1"], "192.0.2.7"]
    assert len(await routes_of(cloud, nodes)) == len(nodes)


async def test_a_port_that_someone_changed_meanwhile_is_read_again(
    cloud: Started, router: Router, nodes: list[Node]
) -> None:
    await routes_of(cloud, nodes)
    router.set_pairs("node-1", "192.0.2.7")
    with pytest.raises(CloudError, match="412"):
        await create_all(cloud, nodes[:1])
    await create_all(cloud, nodes[:1])
    assert sorted(router.pairs("node-1")) == [CIDRS["node-1"], "192.0.2.7"]


async def test_upstreams_routes_are_taken_over(
    cloud: Started, router: Router, nodes: list[Node]
) -> None:
    """No route is touched: they only get our mark."""
    theirs = [
        {"destination": cidr, "nexthop": router.address(name)} for name, cidr in CIDRS.items()
    ]
    router.set_routes(*theirs)
    for name, cidr in CIDRS.items():
        router.set_pairs(name, cidr)
    assert await routes_of(cloud, nodes) == []
    await create_all(cloud, nodes)
    assert {route.node: route.cidr for route in await routes_of(cloud, nodes)} == CIDRS
    assert {"AddExtraRoutes", "UpdatePort"}.isdisjoint(cloud.operations)


async def test_one_route_that_cannot_be_had_keeps_no_other_out(
    cloud: Started, router: Router, nodes: list[Node]
) -> None:
    router.set_routes({"destination": CIDRS["node-2"], "nexthop": router.address("node-3")})
    assert cloud.routes
    create = cloud.routes.create
    results = await asyncio.gather(
        *(invoke(create, one, one.pod_cidrs[0]) for one in nodes), return_exceptions=True
    )
    assert [type(result) for result in results] == [type(None), Refused, type(None)]
    assert router.routes[CIDRS["node-3"]] == router.address("node-3")


async def test_a_kubelet_cannot_lead_a_route_elsewhere(
    cloud: Started, router: Router, nodes: list[Node]
) -> None:
    """The next hop is an address of the Node's own server, whatever its status says."""
    lie = {"type": "InternalIP", "address": router.address("node-2")}
    nodes[0].raw["status"] = {"addresses": [lie]}
    await create_all(cloud, nodes[:1])
    assert router.routes == {CIDRS["node-1"]: router.address("node-1")}


async def test_both_families_are_routed(cloud: Started, lab: Lab, router: Router) -> None:
    """OS91."""
    dual = node("dual-1", f"openstack:///{lab.world['servers']['dual-1']}")
    dual.raw["spec"]["podCIDRs"] = cidrs = ["10.244.9.0/24", "fd00:244:9::/64"]
    assert cloud.routes
    for cidr in cidrs:
        await invoke(cloud.routes.create, dual, cidr)
    assert {":" in hop for hop in router.routes.values()} == {True, False}
    assert [route.cidr for route in await routes_of(cloud, [dual])] == sorted(cidrs)


async def test_routes_that_others_change_at_the_same_time_are_not_lost(
    cloud: Started, lab: Lab, router: Router, nodes: list[Node]
) -> None:
    """OS89: each call adds or takes its own routes and leaves the rest to the router."""
    router.set_routes(APPLIANCE)
    more = {"destination": "172.30.0.0/24", "nexthop": "10.0.250.251"}
    slow = {"service": "neutron", "method": "PUT", "path": "extraroutes", "delay": 1.0}
    with lab.faults({**slow, "agent": lab.agent}):
        adding = asyncio.create_task(create_all(cloud, nodes))
        await until("our change is on its way", lambda: "AddExtraRoutes" in cloud.operations)
        for action, route in (("add", more), ("remove", APPLIANCE)):
            body = {"router": {"routes": [route]}}
            path = f"{router.path}/{action}_extraroutes"
            await asyncio.to_thread(lab.call, "neutron", "PUT", path, body)
        await adding
    wanted = {cidr: router.address(name) for name, cidr in CIDRS.items()}
    assert router.routes == {more["destination"]: more["nexthop"], **wanted}


async def test_two_clusters_of_one_name_do_not_touch_each_others_routes(
    cloud: Started, lab: Lab, router: Router, nodes: list[Node]
) -> None:
    """OS75: a route from before the UID was known is taken over with its Node, and no other."""
    await create_all(cloud, nodes)
    one, other = [await Started(lab.config, uid=uid).start() for uid in ("cluster-1", "cluster-2")]
    mine, theirs = nodes[:2], nodes[2:]
    for worker, own in ((one, mine), (other, theirs)):
        assert await routes_of(worker, own) == []
        await create_all(worker, own)
        assert {route.node for route in await routes_of(worker, own)} == {n.name for n in own}
    assert [group["name"][-1] for group in router.groups()] == ["1", "2"]
    assert one.routes
    for route in await routes_of(one, []):
        await invoke(one.routes.delete, route)
    assert list(router.routes) == [theirs[0].pod_cidrs[0]]
    with pytest.raises(Refused, match="another cluster"):
        await create_all(one, theirs)
