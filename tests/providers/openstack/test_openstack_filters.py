"""Services that answer more than was asked for: what a query asks for is looked for in the answer.

A gateway or a cache before a service may drop the query of a request, and an old service does not
know each filter: then a list has what is others' as well.
"""

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any, cast

import pytest

from ccm.cloud.json_api import Request
from ccm.cloud.testkit.gate import KitGate
from ccm.cloud.testkit.harness import node, service
from ccm.errors import CloudError, NotFound
from ccm.model.cloud import Gone, Route, Unknown
from ccm.model.objects import Json
from ccm.providers.openstack.api import OpenStackApi
from ccm.providers.openstack.calls import ApiCall
from ccm.providers.openstack.config import BalancerSection, NetworkingSection, OpenStackConfig
from ccm.providers.openstack.credentials import GlobalSection
from ccm.providers.openstack.ids import Cluster
from ccm.providers.openstack.instances import OpenStackInstances
from ccm.providers.openstack.lb.addresses import Addresses
from ccm.providers.openstack.lb.annotations import PREFIX
from ccm.providers.openstack.lb.backends import Backends
from ccm.providers.openstack.lb.load_balancers import OctaviaLoadBalancers
from ccm.providers.openstack.lb.names import Names, Role
from ccm.providers.openstack.lb.networks import Networks
from ccm.providers.openstack.lb.octavia import Octavia
from ccm.providers.openstack.lb.place import Place
from ccm.providers.openstack.lb.plan import ROOT, ObservedBalancer, plan, plan_deletion
from ccm.providers.openstack.lb.request import IPV4, IPV6, read_request
from ccm.providers.openstack.lb.security_groups import (
    IngressRule,
    Membership,
    SecurityGroups,
    plan_ports,
)
from ccm.providers.openstack.neutron import MOST_ADDRESSES, list_ports
from ccm.providers.openstack.router import RouterRoute
from ccm.providers.openstack.routes import OpenStackRoutes

NAMES = Names.of(service(), Cluster("kubernetes"))
OTHERS = Names.of(service("other"), Cluster("kubernetes"))
RULE: Json = {"id": "r-1", "direction": "ingress", "protocol": "tcp", "port_range_min": 22}


class Unfiltered:
    """Lists all that it has, whatever is asked for; keeps the changes."""

    region = "RegionOne"

    def __init__(self, **lists: list[Json]) -> None:
        self.lists, self.changes = lists, list[tuple[str, str]]()

    async def project_id(self) -> str:
        return "project"

    async def pages(
        self, operation: str, service: str, path: str, key: str, **query: str
    ) -> list[Json]:
        return self.lists[key]

    async def pages_at(self, operation: str, service: str, target: str, key: str) -> list[Json]:
        return self.lists[key]

    async def get(self, operation: str, service: str, path: str, **query: str) -> Json:
        if path.startswith("/address-groups/"):
            found = [it for it in self.lists["address_groups"] if path.endswith(f"/{it['id']}")]
            return {"address_group": found[0]}
        if path == "/routers/router":
            return {"router": {"id": "router", "routes": self.lists.get("routes", [])}}
        raise AssertionError(path)

    async def call(self, operation: str, service: str, method: str, target: str, *_: Any) -> Json:
        self.changes.append((method, target))
        return {"security_group": {"id": "made", "name": "ours"}}

    async def make(self, call: ApiCall, headers: Any = None) -> Json:
        self.changes.append((call.method, call.path))
        return {}


def api(**lists: list[Json]) -> tuple[OpenStackApi, list[tuple[str, str]]]:
    made = Unfiltered(**lists)
    return cast(OpenStackApi, made), made.changes


DEFAULT: Json = {"id": "default", "name": "default", "security_group_rules": [RULE]}


@pytest.mark.virtual_time
async def test_no_security_group_of_another_name_is_changed_or_deleted() -> None:
    port = {"id": "p", "device_id": "s", "security_groups": ["default"], "fixed_ips": []}
    there, changes = api(security_groups=[DEFAULT], ports=[port])
    await SecurityGroups(there).delete("ours")
    assert changes == []
    await SecurityGroups(there).ensure("ours", "", [IngressRule("tcp", 80, "0.0.0.0/0")], {})
    assert changes[0] == ("POST", "/security-groups")
    assert not [path for method, path in changes if "default" in path or method == "DELETE"]


@pytest.mark.virtual_time
@pytest.mark.parametrize(("has_own", "group"), [(True, "own"), (False, "made")])
async def test_a_security_group_of_another_project_is_not_used(has_own: bool, group: str) -> None:
    """A project that shares one with ours may open all ports of all Nodes by its rules."""
    rule = RULE | {"port_range_max": 22, "remote_ip_prefix": "0.0.0.0/0"}
    theirs = {"id": "a", "name": "ours", "project_id": "theirs", "security_group_rules": [rule]}
    port: Json = {"id": "p", "device_id": "server", "security_groups": ["usual"]}
    port["fixed_ips"] = [{"ip_address": "10.0.0.1"}]
    groups: list[Json] = [theirs, {**theirs, "id": "own", "project_id": "project"}][: 1 + has_own]
    there, changes = api(security_groups=groups, ports=[port])
    bodies, make = list[Json](), there.make

    async def keep(call: ApiCall, headers: Any = None) -> Json:
        bodies.append(call.body or {})
        return await make(call)

    cast(Any, there).make = keep
    here = SecurityGroups(there)
    await here.ensure("ours", "", [IngressRule("tcp", 22, "0.0.0.0/0")], {"server": "10.0.0.1"})
    assert bodies[-1] == {"port": {"security_groups": [group, "usual"]}}
    await here.delete("ours")
    await here.delete_stale("ours")
    assert ("DELETE", "/security-groups/a") not in changes
    assert (("DELETE", "/security-groups/own") in changes) == has_own


@pytest.mark.virtual_time
async def test_rules_that_a_list_has_at_another_group_stay() -> None:
    """A person's group lost what it lets in, for good."""
    rule = RULE | {"id": "theirs-22", "security_group_id": "theirs"}
    groups: list[Json] = [{"id": "ours", "name": "ours", "security_group_rules": [rule]}]
    there, changes = api(security_groups=groups, ports=[])
    await SecurityGroups(there).ensure("ours", "", [IngressRule("tcp", 80, "0.0.0.0/0")], {})
    assert changes == [("POST", "/security-group-rules")]


ROUTER_PORT: Json = {"device_id": "router", "network_id": "n"}


async def test_an_address_group_of_another_project_says_nothing_of_our_routes() -> None:
    theirs = {"id": "a", "project_id": "theirs", "addresses": ["10.244.1.0/24"]}
    names = "ccm-routes-uid", "ccm-routes-kubernetes", "ccm-routes-other"
    groups: list[Json] = [{**theirs, "name": name} for name in names]
    groups.append({"id": "b", "name": names[0], "project_id": "project", "addresses": []})
    made: Json = {"destination": "10.244.1.0/24", "nexthop": "10.0.0.1"}
    there, changes = api(address_groups=groups, ports=[ROUTER_PORT], routes=[made])
    routes = OpenStackRoutes(there, "router", Cluster("kubernetes", "uid"))
    assert await routes.list([]) == []
    await routes._add_routes([RouterRoute("10.244.1.0/24", "10.0.0.1")])
    assert changes == [("PUT", "/address-groups/b/add_addresses")]


async def test_a_mark_in_a_second_address_group_of_the_name_goes() -> None:
    """A list that lacked the first had a second one made; the mark there would stay for good."""
    first, second = "10.244.1.0/24", "10.244.2.0/24"
    groups: list[Json] = [
        {"id": "a", "name": "ccm-routes-uid", "addresses": [first]},
        {"id": "b", "name": "ccm-routes-uid", "addresses": [second]},
    ]
    there, changes = api(address_groups=groups, ports=[ROUTER_PORT])
    routes = OpenStackRoutes(there, "router", Cluster("kubernetes", "uid"))
    await routes.delete(Route(second, "", id=f"{second}@"))
    assert changes == [("DELETE", "/address-groups/b")]


@pytest.mark.parametrize("field", ["id", "name", "addresses"])
@pytest.mark.parametrize("name", ["ccm-routes-uid", "ccm-routes-kubernetes"])
async def test_address_groups_that_lists_mix_up_have_no_other_one_written(
    field: str, name: str
) -> None:
    """Another cluster's marks would go, or its group have ours: our route was theirs for good."""
    ours, theirs = "10.244.1.0/24", "10.250.1.0/24"
    groups: list[Json] = [
        {"id": "own", "name": name, "addresses": [ours]},
        {"id": "theirs", "name": "ccm-routes-other", "addresses": [theirs]},
    ]
    one, other = groups
    there, changes = api(address_groups=groups, ports=[ROUTER_PORT])

    async def mixed_up(*_: str, **query: str) -> list[Json]:
        return [{**one, field: other[field]}, {**other, field: one[field]}]

    cast(Any, there).pages = mixed_up
    routes = OpenStackRoutes(there, "router", Cluster("kubernetes", "uid"))
    for wanted in (ours, theirs, "10.244.2.0/24"):
        with suppress(CloudError):
            await routes.delete(Route(wanted, "", id=f"{wanted}@"))
        with suppress(CloudError):
            await routes._add_routes([RouterRoute(wanted, "10.0.0.1")])
    assert not [target for _, target in changes if "theirs" in target], changes


class MixedUp(Unfiltered):
    """Answers each creation with what another's creation made, and reads with another's record."""

    async def get(self, operation: str, service: str, path: str, **query: str) -> Json:
        return {"healthmonitor": {"id": "theirs"}}

    async def call(self, operation: str, service: str, method: str, target: str, *_: Any) -> Json:
        self.changes.append((method, target))
        return {"security_group": DEFAULT}

    async def make(self, call: ApiCall, headers: Any = None) -> Json:
        self.changes.append((call.method, call.path))
        return {"loadbalancer": {"id": "theirs", "name": OTHERS.balancer, "vip_port_id": "p"}}


async def test_anothers_security_group_in_an_answer_is_not_taken_for_ones_own() -> None:
    """Its rules would be deleted, and it would be taken off all ports that have it."""
    mixed = MixedUp(security_groups=[], ports=[])
    groups = SecurityGroups(cast(OpenStackApi, mixed))
    with pytest.raises(CloudError, match="CreateSecurityGroup: the answer is not about ours"):
        await groups.ensure("ours", "", [IngressRule("tcp", 80, "0.0.0.0/0")], {})
    assert mixed.changes == [("POST", "/security-groups")]


async def test_anothers_load_balancer_in_an_answer_is_not_taken_for_ones_own() -> None:
    """It would get a floating IP, and be open to the world."""
    call = ApiCall("CreateLoadBalancer", "load-balancer", "POST", "/v2/lbaas/loadbalancers", {})
    octavia = Octavia(cast(OpenStackApi, MixedUp()))
    with pytest.raises(CloudError, match="CreateLoadBalancer: the answer is not about"):
        await octavia.create(NAMES, call)


async def test_anothers_health_monitor_in_an_answer_is_not_taken_for_ones_own() -> None:
    """The ID in the answer is where the next write would go."""
    of_it = {"loadbalancers": [{"id": "lb-1"}]}
    listener = {"id": "l", "tags": NAMES.listener_tags, "default_pool_id": "p", **of_it}
    pool = {"id": "p", "healthmonitor_id": "ours", **of_it}
    mixed = MixedUp(listeners=[listener], pools=[pool])
    observed = ObservedBalancer({"id": "lb-1", "tags": []}, Role.OWNER)
    with pytest.raises(CloudError, match="GetHealthMonitor: the answer is not about ours"):
        await Octavia(cast(OpenStackApi, mixed)).with_parts(observed, NAMES)


async def test_a_load_balancer_of_another_name_or_mark_is_not_found() -> None:
    others = [
        {"id": "lb-1", "name": "theirs", "tags": []},
        {"id": "lb-2", "name": OTHERS.balancer, "tags": OTHERS.tags(Role.OWNER)},
    ]
    own = {"id": "lb-3", "name": NAMES.balancer, "tags": NAMES.tags(Role.OWNER)}
    there, _ = api(loadbalancers=[*others, own])
    octavia = Octavia(there)
    assert await octavia.by_name(NAMES.legacy_balancer) == []
    assert await octavia.by_name(NAMES.balancer) == [own]
    assert await octavia.by_marks(NAMES) == [own]
    assert await octavia.of_cluster(Cluster("kubernetes", "uid-1")) == []


async def test_listeners_and_pools_of_another_load_balancer_are_not_its_own() -> None:
    listeners = [
        {"id": "own", "loadbalancers": [{"id": "lb-1"}]},
        {"id": "theirs", "loadbalancers": [{"id": "lb-2"}]},
    ]
    there, _ = api(listeners=listeners, pools=listeners)
    observed = ObservedBalancer({"id": "lb-1", "tags": []}, Role.OWNER)
    read = await Octavia(there).with_parts(observed, NAMES)
    assert [item["id"] for item in read.listeners] == ["own"]
    assert list(read.pools) == ["own"]


async def test_a_subnet_of_another_network_is_not_taken() -> None:
    records = [
        {"id": "a", "network_id": "n-1", "cidr": "10.0.0.0/24"},
        {"id": "b", "network_id": "n-2", "cidr": "10.1.0.0/24"},
    ]
    there, _ = api(subnets=records)
    assert [item.id for item in await Networks(there).subnets_of("n-1")] == ["a"]


async def test_a_subnet_that_one_list_lacks_is_one_of_a_new_load_balancer() -> None:
    """It had no IPv6 for good: that is decided when it is made."""
    v4, v6 = (
        {"id": cidr, "network_id": "n-1", "cidr": cidr} for cidr in ("10.0.0.0/24", "fd00::/64")
    )
    answers = [[v4], [v4, v6]]

    class Neutron:
        async def pages_at(self, operation: str, service: str, target: str, key: str) -> list[Json]:
            return answers.pop(0)

    place = Place("", "", "n-1", "", "", "", "", "")
    found = await Networks(cast(OpenStackApi, Neutron())).vip_subnets(place, (IPV4, IPV6), [])
    assert [item.id for item in found] == ["10.0.0.0/24", "fd00::/64"]


async def test_networks_that_tenants_name_take_no_memory() -> None:
    there, _ = api(subnets=[])
    networks, now = Networks(there), 0.0
    for number in range(100):
        await networks.subnets_of(f"n-{number}")
        networks._kept = {key: (now, found) for key, (_, found) in networks._kept.items()}
    assert len(networks._kept) == 1


async def test_a_floating_ip_of_another_project_is_not_attached() -> None:
    """Credentials that see all projects are shown theirs where the query is lost."""
    theirs = {"id": "a", "floating_ip_address": "203.0.113.7", "project_id": "theirs"}
    there, changes = api(floatingips=[theirs])
    asked, config = service(loadBalancerIP="203.0.113.7"), BalancerSection()
    request = read_request(
        asked, replace(config, floating_network_id="net"), {}, Cluster("kubernetes")
    )
    record = {"id": "lb", "vip_port_id": "port", "vip_address": "10.0.0.9"}

    async def get(*_: str) -> Json:
        return {"loadbalancer": record}

    cast(Any, there).get = get
    with pytest.raises(CloudError, match="the answer is not about port"):
        await Addresses(there, Networks(there)).ensure(request, record, Role.OWNER)
    assert changes == [("POST", "/floatingips")]


async def test_a_group_that_one_list_lacked_goes_with_its_service() -> None:
    """A group that stays opens its node ports, which another Service gets."""
    there, changes = api(security_groups=[], ports=[])
    backends = Backends(there, Networks(there), manages_groups=False)
    await backends.close(OTHERS)
    cast(Any, there).lists["security_groups"] = [{"id": "own", "name": NAMES.security_group}]
    await backends.close(NAMES)
    assert changes == [("DELETE", "/security-groups/own")]


ID = "11111111-2222-3333-4444-5555555555{:02}"


@pytest.mark.parametrize("server_id", [None, "", 5, [], {}])
async def test_servers_without_an_id_in_the_list_prove_no_one_gone(server_id: object) -> None:
    """However many there are: Nova has one for each Node, and does not say which is whose."""
    nodes = [node(f"node-{number}", f"openstack:///{ID.format(number)}") for number in range(12)]
    there, _ = api(servers=[{"id": server_id, "name": it.name, "status": "ACTIVE"} for it in nodes])
    instances = OpenStackInstances(there, NetworkingSection(), is_regional=False)
    answers = await instances.describe(nodes)
    assert {type(answer) for answer in answers.values()} == {Unknown}


async def test_neutrons_lists_are_read_to_their_end() -> None:
    """Where it is configured to give so many at the most (`pagination_max_limit`)."""
    config = OpenStackConfig(GlobalSection(auth_url="https://x"))
    there, asked = OpenStackApi(config, lambda: config, KitGate(10.0), ""), list[str]()
    pages: list[Json] = [
        {"ports": [{"id": "p-1"}], "ports_links": [{"rel": "next", "href": "https://elsewhere"}]},
        {"ports": [{"id": "p-2"}], "ports_links": [{"rel": "previous"}]},
    ]

    async def request(sent: Request) -> Json:
        asked.append(sent.target)
        return pages.pop(0)

    cast(Any, there).request = request
    found = await list_ports(there, "device_id", ["s-1", "s-2"], ["fixed_ips"])
    assert [item["id"] for item in found] == ["p-1", "p-2"]
    query = "device_id=s-1&device_id=s-2&fields=id&fields=fixed_ips"
    assert asked == [f"/ports?{query}", f"/ports?{query}&marker=p-1"]


async def test_an_empty_list_of_ports_takes_no_member_away() -> None:
    there, _ = api(ports=[])
    servers = [ID.format(number) for number in range(3)]
    with pytest.raises(CloudError, match="none of the 3 servers' ports"):
        await Networks(there).fixed_addresses(servers)
    assert await Networks(there).fixed_addresses(servers[:2]) == {}


@pytest.mark.virtual_time
async def test_a_server_that_a_list_of_ports_leaves_out_stays_a_member() -> None:
    """Until its Node is gone; what is forgotten takes no memory."""
    ports: list[Json] = [
        {"device_id": name, "fixed_ips": [{"ip_address": name, "subnet_id": "s"}]} for name in "abc"
    ]
    there, _ = api(ports=ports)
    networks, all_of_them = Networks(there), {name: {name: "s"} for name in "abc"}
    assert await networks.fixed_addresses("abc") == all_of_them
    del ports[0]
    for _ in range(10):
        await asyncio.sleep(1800.0)
        assert await networks.fixed_addresses("abc") == all_of_them
    for _ in range(3):
        await asyncio.sleep(1800.0)
        await networks.fixed_addresses("bc")
    assert await networks.fixed_addresses("abc") == {name: {name: "s"} for name in "bc"}


@pytest.mark.virtual_time
@pytest.mark.parametrize("listed", [None, [], [{}]])
@pytest.mark.parametrize("count", [1, 3])
async def test_a_server_whose_port_is_listed_without_addresses_stays_a_member(
    listed: object, count: int
) -> None:
    ports: list[Json] = [
        {"device_id": name, "fixed_ips": [{"ip_address": name, "subnet_id": "s"}]} for name in "abc"
    ]
    there, _ = api(ports=ports)
    networks, all_of_them = Networks(there), {name: {name: "s"} for name in "abc"}
    assert await networks.fixed_addresses("abc") == all_of_them
    for port in ports[:count]:
        port["fixed_ips"] = listed
    await asyncio.sleep(60.0)
    assert await networks.fixed_addresses("abc") == all_of_them
    if count == len(ports):
        with pytest.raises(CloudError, match="none of the 3 servers' ports"):
            await Networks(there).fixed_addresses("abc")


@pytest.mark.parametrize("of_router", [False, True])
async def test_a_list_of_ports_that_lacks_all_makes_no_route_a_blackhole(of_router: bool) -> None:
    """Every Node's route would be deleted."""
    nodes = [node(f"node-{number}", f"openstack:///{ID.format(number)}") for number in range(3)]
    routes = [
        {"destination": f"10.244.{it}.0/24", "nexthop": f"10.0.0.{it + 1}"} for it in range(3)
    ]
    group = {"id": "g", "name": "ccm-routes-uid", "addresses": [it["destination"] for it in routes]}
    port = {"id": "p", "device_id": "router", "network_id": "n", "fixed_ips": []}
    there, changes = api(ports=[port] if of_router else [], address_groups=[group])

    async def get(operation: str, service: str, path: str, **query: str) -> Json:
        return {"router": {"id": "router", "routes": routes}}

    cast(Any, there).get = get
    with pytest.raises(CloudError, match="not trusted"):
        await OpenStackRoutes(there, "router", Cluster("kubernetes", "uid")).list(nodes)
    assert changes == []


async def test_a_port_that_a_list_leaves_out_deletes_no_route() -> None:
    """It counts as its Node's while this says that it has the address."""
    nodes = [node(f"node-{number}", f"openstack:///{ID.format(number)}") for number in range(3)]
    ports: list[Json] = [{"id": "p", "device_id": "router", "network_id": "n"}]
    cidrs = [f"10.244.{number}.0/24" for number in range(3)]
    for number, (one, cidr) in enumerate(zip(nodes, cidrs, strict=True)):
        address = f"10.0.0.{number + 1}"
        one.raw["spec"]["podCIDRs"] = [cidr]
        one.raw["status"] = {"addresses": [{"type": "InternalIP", "address": address}]}
        at = {"device_id": ID.format(number), "fixed_ips": [{"ip_address": address}]}
        ports.append({"id": f"p-{number}", "network_id": "n", **at})
    routes = [{"destination": cidr, "nexthop": f"10.0.0.{at + 1}"} for at, cidr in enumerate(cidrs)]
    group = {"id": "g", "name": "ccm-routes-uid", "addresses": cidrs}
    there, _ = api(ports=ports, address_groups=[group])

    async def get(operation: str, service: str, path: str, **query: str) -> Json:
        return {"router": {"id": "router", "routes": routes}}

    cast(Any, there).get = get
    listed = OpenStackRoutes(there, "router", Cluster("kubernetes", "uid")).list
    complete = await listed(nodes)
    assert [(one.node, one.is_blackhole) for one in complete] == [(x.name, False) for x in nodes]
    del ports[1]
    assert await listed(nodes) == complete
    hostile = node("z", "openstack:///" + ID.format(9))
    hostile.raw["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    hostile.raw["spec"]["podCIDRs"], hostile.raw["status"] = [cidrs[0]], nodes[0].raw["status"]
    assert await listed([*nodes, hostile]) == complete
    nodes[0].raw["status"]["addresses"][0]["address"] = "10.0.0.9"
    assert [one.is_blackhole for one in await listed(nodes)] == [True, False, False]


async def test_of_thousands_of_addresses_of_each_node_a_list_of_routes_looks_at_few() -> None:
    """A hundred such Nodes took two seconds of one turn."""
    looks = list[object]()

    class Counted(dict[str, object]):
        def get(self, key: str, default: object = None) -> object:
            looks.append(key)
            return super().get(key, default)

    hostile = node("z", "openstack:///" + ID.format(9))
    hostile.raw["spec"]["podCIDRs"] = ["10.244.0.0/24", "fd00::/64"]
    hostile.raw["status"] = {"addresses": [Counted(address="10.0.0.9") for _ in range(5001)]}
    there, _ = api(ports=[{"id": "p", "device_id": "router", "network_id": "n"}], address_groups=[])

    async def get(operation: str, service: str, path: str, **query: str) -> Json:
        return {"router": {"id": "router", "routes": []}}

    cast(Any, there).get = get
    await OpenStackRoutes(there, "router", Cluster("kubernetes", "uid")).list([hostile])
    assert len(looks) <= 2 * MOST_ADDRESSES


async def test_pairs_of_ports_with_other_addresses_stay() -> None:
    """Another router may lead the same network to another cluster's machine."""
    pairs = [{"ip_address": "10.244.1.0/24"}]
    ports: list[Json] = [
        {"id": f"p-{at}", "device_id": f"s-{at}", "network_id": "n", "allowed_address_pairs": pairs,
            "fixed_ips": [{"ip_address": f"10.0.0.{at}"}]} for at in (1, 2)
    ]  # fmt: skip
    there, changes = api(ports=[*ports, {"device_id": "router", "network_id": "n"}],
        address_groups=[])  # fmt: skip

    async def get(operation: str, service: str, path: str, **query: str) -> Json:
        port = next((item for item in ports if path == f"/ports/{item['id']}"), None)
        return {"port": port} if port else {"router": {"id": "router", "routes": []}}

    cast(Any, there).get = get
    routes = OpenStackRoutes(there, "router", Cluster("kubernetes", "uid"))
    await routes.delete(Route("10.244.1.0/24", "", id="10.244.1.0/24@10.0.0.1"))
    assert [target for _, target in changes if "ports" in target] == ["/ports/p-1"]


@pytest.mark.parametrize("field", ["id", "device_id", "fixed_ips"])
@pytest.mark.parametrize("is_wanted", [True, False])
async def test_ports_that_one_list_mixes_up_have_no_pairs_of_another_changed(
    field: str, *, is_wanted: bool
) -> None:
    """Another cluster's server was let send for our pods, for good, or no longer for its own."""
    cidr = "10.244.1.0/24"
    own, theirs = (
        {"id": f"p-{at}", "device_id": ID.format(at), "network_id": "n", "revision_number": at,
            "port_security_enabled": True, "fixed_ips": [{"ip_address": f"10.0.0.{at}"}],
            "allowed_address_pairs": [{"ip_address": cidr}] * (not is_wanted)} for at in (1, 2)
    )  # fmt: skip
    records: list[Json] = [own, theirs]
    mixed: list[Json] = [own | {field: theirs[field]}, theirs | {field: own[field]}, ROUTER_PORT]
    there, changes = api(ports=mixed, address_groups=[])
    usual = there.get

    async def get(operation: str, service: str, path: str, **query: str) -> Json:
        found = [it for it in records if path == f"/ports/{it['id']}"]
        return {"port": found[0]} if found else await usual(operation, service, path)

    cast(Any, there).get = get
    routes = OpenStackRoutes(there, "router", Cluster("kubernetes", "uid"))
    one = node("node-1", f"openstack:///{ID.format(1)}")
    one.raw["spec"]["podCIDRs"] = [cidr]
    one.raw["status"] = {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}
    with suppress(CloudError):
        if is_wanted:
            await routes.create(one, cidr)
        else:
            await routes.delete(Route(cidr, "", id=f"{cidr}@10.0.0.1"))
    assert ("PUT", "/ports/p-2") not in changes


@pytest.mark.virtual_time
@pytest.mark.parametrize("hollow", ["list", "port"])
@pytest.mark.parametrize("is_wanted", [True, False])
async def test_an_answer_that_lacks_the_address_pairs_of_others_takes_none_away(
    hollow: str, *, is_wanted: bool
) -> None:
    """As that of an address that moves between servers: its packets would be dropped."""
    cidr, vip = "10.244.1.0/24", {"ip_address": "10.0.0.100"}
    pairs = [vip] if is_wanted else [vip, {"ip_address": cidr}]
    whole: Json = {"id": "p", "device_id": ID.format(1), "network_id": "n", "revision_number": 7,
        "port_security_enabled": True, "fixed_ips": [{"ip_address": "10.0.0.1"}],
        "allowed_address_pairs": pairs}  # fmt: skip
    answers = {"list": whole, "port": whole, hollow: {**whole, "allowed_address_pairs": []}}
    router = {"id": "r", "device_id": "router", "network_id": "n"}
    there, _ = api(ports=[answers["list"], router], address_groups=[])
    written = list[tuple[Any, ...]]()

    async def get(operation: str, service: str, path: str, **query: str) -> Json:
        is_port = operation == "GetPort"
        return {"port": answers["port"]} if is_port else {"router": {"id": "router", "routes": []}}

    async def call(operation: str, service: str, method: str, target: str, *more: Any) -> Json:
        written.extend([more] if operation == "UpdatePort" else [])
        return {}

    cast(Any, there).get, cast(Any, there).call = get, call
    routes = OpenStackRoutes(there, "router", Cluster("kubernetes", "uid"))
    if is_wanted:
        change = routes.create(node("node-1", f"openstack:///{ID.format(1)}"), cidr)
    else:
        change = routes.delete(Route(cidr, "", id=f"{cidr}@10.0.0.1"))
    lacks = pytest.raises(CloudError, match="GetPort: port p lacks allowed_address_pairs")
    with nullcontext() if hollow == "list" else lacks:
        await change
    left = [vip, {"ip_address": cidr}] if is_wanted else [vip]
    body = {"port": {"allowed_address_pairs": left}}
    expected = [(body, {"If-Match": "revision_number=7"})] if hollow == "list" else []
    assert written == expected


async def test_a_port_that_lacks_its_groups_keeps_them() -> None:
    """The port would have the load balancer's alone, and be closed to all else."""
    port: Json = {"id": "p", "device_id": "s", "fixed_ips": [{"ip_address": "10.0.0.1"}]}
    with pytest.raises(CloudError, match="security_groups"):
        [*plan_ports([Membership("group", {"s": "10.0.0.1"})], [port])]


@pytest.mark.parametrize("answer", ["500", "there"])
async def test_servers_that_lists_skip_are_not_gone_while_nova_does_not_say_so(answer: str) -> None:
    """Nova's lists leave out the servers of a cell that does not answer, however many these are."""
    nodes = [node(f"node-{number}", f"openstack:///{ID.format(number)}") for number in range(12)]
    other = {"id": ID.format(99), "name": "other", "status": "ACTIVE"}
    there, _ = api(servers=[other])

    async def get(operation: str, service: str, path: str, **query: str) -> Json:
        if answer == "500":
            raise CloudError("GetServer: 500 Cell is not responding")
        return {"server": {**other, "id": path.rpartition("/")[2]}}

    cast(Any, there).get = get
    instances = OpenStackInstances(there, NetworkingSection(), is_regional=False)
    answers = await instances.describe(nodes)
    assert {type(answer) for answer in answers.values()} == {Unknown}


@pytest.mark.parametrize("status", ["DELETED", "SOFT_DELETED"])
@pytest.mark.parametrize(("answer", "kind"), [("ACTIVE", Unknown), ("DELETED", Gone), ("", Gone)])
async def test_a_server_that_lists_call_deleted_is_gone_when_nova_says_so_of_its_id(
    status: str, answer: str, kind: type
) -> None:
    """All lists are one kind of read."""
    asked = node("node-1", f"openstack:///{ID.format(1)}")
    record: Json = {"id": ID.format(1), "name": "node-1", "status": status, "addresses": {}}
    there, _ = api(servers=[record, {"id": ID.format(99), "name": "other", "status": "ACTIVE"}])

    async def get(operation: str, service: str, path: str, **query: str) -> Json:
        if not answer:
            raise NotFound("GetServer: 404")
        return {"server": {**record, "status": answer}}

    cast(Any, there).get = get
    instances = OpenStackInstances(there, NetworkingSection(), is_regional=False)
    answers = await instances.describe([asked])
    assert type(answers["node-1"]) is kind


async def test_servers_that_neither_list_nor_nova_has_are_gone() -> None:
    nodes = [node(f"node-{number}", f"openstack:///{ID.format(number)}") for number in range(12)]
    there, _ = api(servers=[{"id": ID.format(99), "name": "other", "status": "ACTIVE"}])

    async def get(operation: str, service: str, path: str, **query: str) -> Json:
        raise NotFound("GetServer: 404")

    cast(Any, there).get = get
    instances = OpenStackInstances(there, NetworkingSection(), is_regional=False)
    answers = await instances.describe(nodes)
    assert {type(answer) for answer in answers.values()} == {Gone}


class Alone(Unfiltered):
    """Has each record by itself as well, by its path; what it has not is not found."""

    def __init__(self, records: Mapping[str, Json], **lists: list[Json]) -> None:
        super().__init__(**lists)
        self.records = records

    async def get(self, operation: str, service: str, path: str, **query: str) -> Json:
        if path not in self.records:
            raise NotFound(path)
        return self.records[path]


SHARED: Json = {
    "id": "lb-1",
    "name": OTHERS.balancer,
    "tags": [*OTHERS.tags(Role.OWNER), *NAMES.tags(Role.SHARER)],
    "provisioning_status": "ACTIVE",
}
OF_IT: Json = {"loadbalancers": [{"id": "lb-1"}], "protocol": "TCP", "protocol_port": 81}
LISTENER: Json = {"id": "l-1", "tags": NAMES.listener_tags, **OF_IT}


async def test_a_shared_load_balancer_whose_tags_one_answer_lacks_stays_as_it_is() -> None:
    """Its owner would not know it any more, or who shares it would lose its listeners."""
    there = Alone({f"{ROOT}/loadbalancers/lb-1": {"loadbalancer": SHARED}})
    octavia = Octavia(cast(OpenStackApi, there))
    own, bare = ({**SHARED, "tags": tags} for tags in (OTHERS.tags(Role.OWNER), []))
    (deletion,) = plan_deletion(OTHERS, ObservedBalancer(own, Role.OWNER), True)
    (marking,) = plan(NAMES, (), ObservedBalancer(bare, Role.SHARER))
    for record, call in ((own, deletion), (bare, marking)):
        with pytest.raises(CloudError, match="two answers differ"):
            await octavia.change(record, call)
    assert there.changes == []
    await octavia.change(SHARED, deletion)
    assert there.changes == [("DELETE", deletion.path)]


async def test_a_listener_that_is_listed_without_tags_is_not_the_owners() -> None:
    """It would be deleted as one that the owner does not want any more."""
    there = Alone({f"{ROOT}/listeners/l-1": {"listener": LISTENER}}, pools=[])
    there.lists["listeners"] = [{**LISTENER, "tags": []}]
    octavia = Octavia(cast(OpenStackApi, there))
    for record, count in ((SHARED, 0), ({**SHARED, "tags": []}, 1)):
        read = await octavia.with_parts(ObservedBalancer(record, Role.OWNER), OTHERS)
        assert len(read.own_listeners(OTHERS)) == count


async def test_who_shares_a_load_balancer_that_one_answer_lacks_stays_on_it() -> None:
    """Its listeners would go, and it would get a load balancer with another address."""
    there = Alone({}, loadbalancers=[SHARED], listeners=[LISTENER], pools=[])
    balancers = OctaviaLoadBalancers(
        cast(OpenStackApi, there), BalancerSection(), {}, Cluster("kubernetes")
    )
    asked = service("web", {f"{PREFIX}load-balancer-id": "lb-1"})
    with pytest.raises(CloudError, match="lb-1 is listed, and not found"):
        await balancers.ensure(asked, [])
    assert there.changes == []


RECORD: Json = {"id": "lb-1", "vip_port_id": "vip", "vip_address": "10.0.0.9"}
PLACED: Mapping[str, Json] = {f"{ROOT}/loadbalancers/lb-1": {"loadbalancer": RECORD}}


async def test_a_floating_ip_that_is_listed_without_its_port_stays_where_it_is() -> None:
    """A person may have given it to a machine."""
    used = {"id": "f-1", "floating_ip_address": "203.0.113.7", "port_id": "persons"}
    used |= {"description": NAMES.floating_ip}
    there = Alone({"/floatingips/f-1": {"floatingip": used}, **PLACED})
    there.lists["floatingips"] = [{**used, "port_id": None}]
    api = cast(OpenStackApi, there)
    asked = service(loadBalancerIP="203.0.113.7")
    request = read_request(asked, BalancerSection(), {}, Cluster("kubernetes"))
    addresses = Addresses(api, Networks(api))
    with pytest.raises(CloudError, match="lacks the port of f-1"):
        await addresses.ensure(request, RECORD, Role.OWNER)
    with pytest.raises(CloudError, match="lacks the port of f-1"):
        await addresses.release(NAMES, False, ["vip"])
    assert there.changes == []


async def test_a_floating_ip_that_one_list_has_with_the_mark_of_another_stays() -> None:
    """It was a person's, or kept for a Service to come: a list that mixed it up had it deleted."""
    kept = {"id": "f-1", "floating_ip_address": "203.0.113.7", "port_id": None, "description": "x"}
    there = Alone({"/floatingips/f-1": {"floatingip": kept}, **PLACED})
    there.lists["floatingips"] = [{**kept, "description": NAMES.floating_ip}]
    api = cast(OpenStackApi, there)
    request = read_request(service(), BalancerSection(), {}, Cluster("kubernetes"))
    addresses = Addresses(api, Networks(api))
    with pytest.raises(CloudError, match="another description of f-1"):
        await addresses.release(NAMES, False, ["vip"])
    with pytest.raises(CloudError, match="another description of f-1"):
        await addresses.ensure(request, RECORD, Role.OWNER)
    assert there.changes == []


async def test_external_networks_that_one_list_lacks_are_there_all_the_same() -> None:
    """Services of five minutes would have no floating IP, for half an hour."""
    inside, public = ({"id": name, "router:external": name == "p"} for name in ("i", "p"))
    answers = [[], [inside, public]]

    class Neutron:
        async def pages_at(self, *_: str) -> list[Json]:
            return answers.pop(0)

    assert await Networks(cast(OpenStackApi, Neutron())).external_networks() == ["p"]
