"""What a Service asks of Incus, the record that it becomes, and which addresses there are."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from ipaddress import ip_network
from typing import Any, cast

import pytest

from ccm.cloud.testkit.harness import node, port, service
from ccm.errors import CloudError, Conflict, NotFound, Refused
from ccm.model.cloud import Ingress
from ccm.model.objects import Json
from ccm.model.records import differences
from ccm.model.service import Service
from ccm.providers.incus.api import IncusApi
from ccm.providers.incus.config import FORWARD, BalancerSection
from ccm.providers.incus.ids import Cluster
from ccm.providers.incus.inventory import ERROR, InstanceList, Inventory
from ccm.providers.incus.lb import plan
from ccm.providers.incus.lb.addresses import allowed_subnets, free_addresses, is_usable
from ccm.providers.incus.lb.load_balancers import IncusLoadBalancers
from ccm.providers.incus.lb.plan import Backend
from ccm.providers.incus.lb.request import (
    ADDRESSES,
    HEALTH_CHECK,
    Listener,
    read_listeners,
    read_request,
    written,
)
from tests.providers.incus.test_incus_records import UUID, instance
from tests.support.cloud import ProvingMachines
from tests.support.waiting import turns_during

CLUSTER = Cluster("kit")
SECTION = BalancerSection(network="ovn0", project="k8s")
BOTH: dict[str, Any] = {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}
LOCAL: dict[str, Any] = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}


@pytest.mark.parametrize(
    ("asked", "reported"),
    [
        (service(ports=[port(80, "SCTP")]), "SCTP"),
        (service(ports=[port(53, "UDP")], **LOCAL), "cannot check UDP"),
        (service("web", {HEALTH_CHECK: "false"}, **LOCAL), "needs health checks"),
        (service("web", {HEALTH_CHECK: "no"}), "give true or false"),
        (service("web", {f"{HEALTH_CHECK}-interval": "0"}), "give 1 to 3600"),
        (service("web", {f"{HEALTH_CHECK}-timeout": "²"}), "give 1 to 3600"),
        (service("web", {f"{HEALTH_CHECK}-timeout": "9" * 5000}), "give 1 to 3600"),
        (service("web", {ADDRESSES: "192.0.2.1,192.0.2.2"}), "one address of each IP family"),
        (service("web", {ADDRESSES: "fe80::1%eth0"}), "one address of each IP family"),
        (service(loadBalancerIP="nonsense"), "spec.loadBalancerIP 'nonsense'"),
        (service(loadBalancerIP="2001:db8::1"), "is not of IPv4"),
        (service(ports=[]), "has no ports"),
        (service(ports=[{"port": 80, "protocol": "TCP"}]), "has no node port"),
    ],
)
def test_what_incus_cannot_do_is_refused(asked: Service, reported: str) -> None:
    """IN52: affinity and source ranges are refused before, as features that it has not."""
    with pytest.raises(Refused, match=reported.replace("²", "")):
        read_request(asked, SECTION, CLUSTER)


def test_a_forward_has_no_checks_and_serves_no_local_service() -> None:
    forward = BalancerSection(network="br0", mode=FORWARD)
    assert read_request(service(), forward, CLUSTER).checks == {}
    with pytest.raises(Refused, match="has to be Cluster"):
        read_request(service(**LOCAL), forward, CLUSTER)


def test_a_request_is_read() -> None:
    """IN42: an address is written in one way."""
    given = {ADDRESSES: "192.0.2.9, 2001:0DB8:2:0::11", f"{HEALTH_CHECK}-interval": "9"}
    asked = service("web", given, ports=[port(443, node_port=30443), port(80)], **BOTH)
    asked.raw["status"] = {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}, {"hostname": "x"}]}}
    request = read_request(asked, SECTION, CLUSTER)
    assert request.addresses == {"IPv4": "192.0.2.9", "IPv6": "2001:db8:2::11"}
    assert request.published == {"IPv4": "192.0.2.7"}
    assert request.listeners == (Listener("tcp", 80, 30080), Listener("tcp", 443, 30443))
    assert request.config["user.ccm.ports"] == "tcp/80/30080,tcp/443/30443"
    assert request.config["healthcheck.interval"] == "9"
    assert read_listeners(written(request.listeners)) == request.listeners
    odd = read_request(service("web", {f"{ADDRESSES[:-2]}": "x"}), SECTION, CLUSTER)
    assert "is not known" in odd.warnings[0]


@pytest.mark.parametrize("value", ["", "tcp", "tcp/80", "tcp/x/1"])
def test_an_invalid_mark_of_ports_is_reported(value: str) -> None:
    with pytest.raises(ValueError):
        read_listeners(value)


CONFIG = {"user.ccm.service-uid": "uid", "user.ccm.service": "default/web", "healthcheck": "true"}
BACKENDS = [Backend("b", "10.0.0.2"), Backend("a", "10.0.0.1")]
LISTENERS = [Listener("udp", 53, 30053), Listener("tcp", 53, 30053), Listener("tcp", 80, 30080)]


def record(**changes: Any) -> Json:
    return {
        **plan.body("load-balancer", CONFIG, LISTENERS, BACKENDS),
        "listen_address": "x",
    } | changes


def test_each_node_port_has_backends_of_its_own() -> None:
    """IN38, IN39."""
    made = record()
    assert [(one["name"], one["target_port"]) for one in made["backends"]] == [
        ("a-30053", "30053"), ("a-30080", "30080"), ("b-30053", "30053"), ("b-30080", "30080"),
    ]  # fmt: skip
    assert [
        (one["protocol"], one["listen_port"], one["target_backend"]) for one in made["ports"]
    ] == [
        ("tcp", "53", ["a-30053", "b-30053"]),
        ("tcp", "80", ["a-30080", "b-30080"]),
        ("udp", "53", ["a-30053", "b-30053"]),
    ]


def test_without_backends_there_are_no_ports() -> None:
    """IN37."""
    made = plan.body("load-balancer", CONFIG, LISTENERS, [])
    assert (made["backends"], made["ports"]) == ([], [])


def test_order_is_no_difference_and_anything_else_is() -> None:
    """IN34."""
    there, wanted = record(), plan.body("load-balancer", CONFIG, LISTENERS[::-1], BACKENDS[::-1])
    there["ports"].reverse()
    there["backends"].reverse()
    there["ports"][0]["target_backend"].reverse()
    assert not differences(wanted, there)
    changes: Json
    for changes in ({"description": "mine"}, {"config": {}}, {"ports": []}, {"backends": []}):
        assert differences(wanted, record(**changes))


def test_what_people_add_stays_and_what_is_ours_is_restored() -> None:
    """IN50."""
    theirs = record(config={**CONFIG, "healthcheck": "false", "user.team": "a", "user.ccm.x": "y"})
    made = plan.body("load-balancer", CONFIG, LISTENERS, BACKENDS, theirs)
    assert made["config"] == {**CONFIG, "user.team": "a"}
    assert not differences(made, {**theirs, **made}), "no loop"
    changed = plan.with_backends("load-balancer", {**theirs, "description": "mine"}, LISTENERS, [])
    assert changed["description"] == "mine"
    assert changed["config"] == theirs["config"], "nodes only"


@pytest.mark.parametrize("mode", ["load-balancer", FORWARD])
def test_what_newer_versions_say_of_a_port_stays_and_is_no_difference(mode: str) -> None:
    """As `snat` of a forward's port (API extension `network_forward_snat`)."""
    there = plan.body(mode, CONFIG, LISTENERS, BACKENDS)
    for one in (*there["ports"], *there.get("backends", [])):
        one["snat"] = one.get("listen_port") == "80"
    made = plan.body(mode, CONFIG, LISTENERS, BACKENDS, there)
    assert not differences(made, there), "no loop"
    fewer = plan.body(mode, CONFIG, LISTENERS[2:], BACKENDS[:1], there)
    assert [one["snat"] for one in fewer["ports"]] == [True]


def test_a_forward_keeps_its_node_while_it_may() -> None:
    """IN66."""
    made = plan.body(FORWARD, CONFIG, LISTENERS, BACKENDS)
    (target,) = {one["target_address"] for one in made["ports"]}
    (other,) = {one.address for one in BACKENDS} - {target}
    gone = [one for one in BACKENDS if one.address == other]
    moved = plan.body(FORWARD, CONFIG, LISTENERS, gone, made)
    assert {one["target_address"] for one in moved["ports"]} == {other}
    back = plan.body(FORWARD, CONFIG, LISTENERS, BACKENDS, moved)
    assert not differences(back, moved), "a spare that is back changes nothing"
    assert "backends" not in made
    assert plan.body(FORWARD, CONFIG, LISTENERS, [], made)["ports"] == []


def test_addresses_of_networks_are_none() -> None:
    pool = ip_network("192.0.2.0/30")
    assert sorted(free_addresses([pool], {"192.0.2.1"})) == ["192.0.2.2"]
    assert not is_usable("192.0.2.3", [pool])
    assert is_usable("192.0.2.3", [pool, ip_network("192.0.2.3/32")])
    assert not is_usable("2001:db8::", [ip_network("2001:db8::/64")])
    assert not is_usable("2001:db8::1", [pool])
    assert list(free_addresses([], set())) == []


def test_a_full_pool_is_seen_as_full() -> None:
    """IN43."""
    pool = ip_network("192.0.2.0/24")
    taken = {str(one) for one in pool.hosts()} - {"192.0.2.200"}
    assert list(free_addresses([pool], taken)) == ["192.0.2.200"]


def test_the_ranges_of_a_project_are_those_of_its_uplink() -> None:
    value = "other:10.0.0.0/8,up:192.0.2.0/24, up:2001:db8::/112,up:nonsense"
    assert list(allowed_subnets(value, "up")) == [
        ip_network("192.0.2.0/24"), ip_network("2001:db8::/112")
    ]  # fmt: skip


class Network:
    """The load balancers of a network and its instances; of some lists `lists` makes others."""

    name = ""

    def __init__(self) -> None:
        self.records: dict[str, Json] = {}
        self.lists: list[Callable[[Sequence[Json]], list[Any]]] = []
        self.instances = [self.instance(number) for number in range(3)]
        self.operations: list[str] = []

    @staticmethod
    def instance(number: int, **changes: Any) -> Any:
        config = {
            "volatile.uuid": f"{UUID[:-3]}{300 + number}",
            "volatile.eth0.last_state.ip_addresses": f"10.99.0.{number + 2}",
        }
        return instance(**{"name": f"n-{number}", "config": config, **changes})

    async def get(self, operation: str, path: str, **query: str) -> Any:
        self.operations.append(operation)
        if operation == "GetLoadBalancer":
            if found := self.records.get(path.rpartition("/")[2]):
                return found
            raise NotFound("Load balancer not found")
        listed = [*self.records.values()]
        return self.lists.pop()(listed) if "List" in operation and self.lists else listed

    async def call(
        self, operation: str, method: str, path: str, query: object, body: Json | None = None
    ) -> None:
        self.operations.append(operation)
        address = path.rpartition("/")[2]
        if body and method == "POST":
            if body["listen_address"] in self.records:
                raise Conflict("a load balancer for that listen address already exists")
            self.records[body["listen_address"]] = body
        elif body:
            self.records[address] |= body
        else:
            del self.records[address]

    async def read(self, recursion: int) -> InstanceList:
        listed = InstanceList()
        for item in self.instances:
            listed.add(item)
        return listed

    def started(self) -> IncusLoadBalancers:
        """A new process of the provider."""
        section = BalancerSection(
            network="ovn0", project="k8s", address_range=(ip_network("192.0.2.0/24"),)
        )
        api, inventory = cast(IncusApi, self), cast(Inventory, self)
        return IncusLoadBalancers(api, ProvingMachines(), inventory, section, CLUSTER)


@pytest.mark.parametrize("lists", [1, 9])
@pytest.mark.parametrize(
    "lacking",
    [
        lambda listed: [],
        lambda listed: [{"listen_address": one["listen_address"]} for one in listed],
        lambda listed: [f"/1.0/load-balancers/{one['listen_address']}" for one in listed],
    ],
)
async def test_a_list_that_lacks_a_published_balancer_moves_no_service(
    lacking: Callable[[Sequence[Json]], list[Any]], lists: int
) -> None:
    """It got another address for good, and the one that its clients know was deleted."""
    network, asked = Network(), service()
    made = await network.started().ensure(asked, [])
    asked.raw["status"] = {"loadBalancer": {"ingress": [{"ip": made.ingress[0].ip}]}}
    before = deepcopy(network.records)
    network.lists = [lacking] * lists
    with pytest.raises(CloudError, match="ListLoadBalancers: the answer"):
        await network.started().ensure(asked, [])
    network.lists.clear()
    assert (await network.started().ensure(asked, [])).ingress == made.ingress
    assert network.records == before
    assert network.operations.count("GetLoadBalancer") <= 1, "in the usual case none is read"
    network.records.clear()
    assert (await network.started().ensure(asked, [])).ingress == made.ingress
    network.records[made.ingress[0].ip]["config"] = {}
    assert (await network.started().ensure(asked, [])).ingress != made.ingress, "another's by now"


@pytest.mark.parametrize("mixed_up", [("config",), ("listen_address",), ("config", "description")])
@pytest.mark.parametrize("method", ["ensure", "update_nodes", "delete"])
async def test_records_that_one_list_mixes_up_have_no_other_one_changed_or_deleted(
    method: str, mixed_up: Sequence[str]
) -> None:
    """By the marks of a Service, the load balancer of another was its second one, and deleted."""
    network, asked, theirs = Network(), service(), service("theirs", ports=[port(81)])
    nodes = [node(f"n-{at}", f"incus://k8s/{UUID[:-3]}{300 + at}") for at in range(3)]
    provider = network.started()
    for each in (asked, theirs):
        made = await provider.ensure(each, nodes)
    address = made.ingress[0].ip
    before = deepcopy(network.records[address])

    def mixing_up(listed: Sequence[Json]) -> list[Any]:
        first, second = deepcopy(listed)
        other = {key: second[key] for key in mixed_up}
        second |= {key: first[key] for key in mixed_up}
        return [first | other, second]

    network.lists = [mixing_up]
    rest = {"ensure": [nodes[:1]], "update_nodes": [nodes[:1]], "delete": []}[method]
    with pytest.raises(CloudError, match="with other marks"):
        await getattr(provider, method)(asked, *rest)
    assert network.records[address] == before
    await getattr(provider, method)(asked, *rest)
    assert network.records[address] == before


@pytest.mark.parametrize(
    ("changes", "stays"),
    [
        pytest.param({"config": {"volatile.uuid": UUID[:-1] + "0"}}, True, id="no address"),
        pytest.param({"expanded_devices": {}}, True, id="no devices"),
        pytest.param({"status_code": 102}, False, id="it is stopped"),
        pytest.param(
            {"expanded_devices": {"eth0": {"type": "nic", "network": "ovn1"}}}, False, id="moved"
        ),
    ],
)
async def test_an_instance_stays_a_backend_while_answers_lack_its_address(
    changes: Json, stays: bool
) -> None:
    """Answers without the addresses of some took these out of all load balancers."""
    network, asked = Network(), service()
    nodes = [node(f"n-{at}", f"incus://k8s/{UUID[:-1]}{at}") for at in range(3)]
    (way,) = (await network.started().ensure(asked, nodes)).ingress
    before = deepcopy(network.records[way.ip]["backends"])
    network.instances[0] = network.instance(0, **changes)
    await network.started().update_nodes(asked, nodes)
    expected = before if stays else before[1:]
    assert network.records[way.ip]["backends"] == expected
    await network.started().ensure(asked, nodes)
    assert network.records[way.ip]["backends"] == expected
    await network.started().update_nodes(asked, nodes[1:])
    assert network.records[way.ip]["backends"] == before[1:], "its Node is gone"


def behind(network: Network, way: Ingress) -> set[str]:
    """The instances behind a load balancer."""
    return {backend.instance for backend in plan.backends_of(network.records[way.ip])}


async def test_a_made_up_uuid_stops_no_service_while_an_instance_cannot_be_read() -> None:
    """A kubelet may write any: each pass of each Service failed, after a read of the project."""
    network, asked = Network(), service()
    nodes = [node(f"n-{at}", f"incus://k8s/{UUID[:-1]}{at}") for at in range(3)]
    hostile = node("hostile", f"incus://k8s/{UUID[:-1]}f")
    (way,) = (await network.started().ensure(asked, [*nodes[:2], hostile])).ingress
    assert behind(network, way) == {"n-0", "n-1"}
    network.instances[0] = network.instance(0, config=None, status_code=ERROR)
    with pytest.raises(CloudError, match="instance n-0 somewhere cannot be read"):
        await network.started().update_nodes(asked, [nodes[0], nodes[2], hostile])
    assert behind(network, way) == {"n-0", "n-2"}, "what cannot be read stays"
    made = await network.started().ensure(service("new"), [*nodes, hostile])
    assert "instance n-0" in made.lacking
    assert behind(network, made.ingress[0]) == {"n-1", "n-2"}
    network.instances[0] = network.instance(0)
    await network.started().update_nodes(service("new"), [*nodes, hostile])
    assert behind(network, made.ingress[0]) == {"n-0", "n-1", "n-2"}


async def test_a_copy_in_a_project_of_the_same_name_takes_no_backend_away() -> None:
    """Two servers may have the project and the UUID: it is not known which one is the Node's."""
    network, asked = Network(), service()
    nodes = [node(f"n-{at}", f"incus://k8s/{UUID[:-1]}{at}") for at in range(2)]
    (way,) = (await network.started().ensure(asked, nodes)).ingress
    network.instances.append(network.instance(0, name="copy"))
    await network.started().update_nodes(asked, nodes)
    assert behind(network, way) == {"n-0", "n-1"}
    made = await network.started().ensure(asked, nodes)
    assert "nodes n-0 have no instance of their own" in made.warnings[0]


async def test_an_instance_of_the_name_in_another_project_takes_no_backend_away() -> None:
    """Which of the two is the Node's is not known: the one that is there stays."""
    network, asked = Network(), service()
    nodes = [node(f"n-{at}", f"lxc:///n-{at}") for at in range(2)]
    (way,) = (await network.started().ensure(asked, nodes)).ingress
    network.instances.append(replace(network.instance(5, name="n-0"), project="other"))
    await network.started().update_nodes(asked, nodes)
    assert behind(network, way) == {"n-0", "n-1"}
    await network.started().update_nodes(asked, nodes[1:])
    assert behind(network, way) == {"n-1"}, "its Node is gone"


async def test_many_ports_on_many_nodes_leave_turns_to_others() -> None:
    """Each port has backends of its own, which took a turn of the loop together."""
    network, turns = Network(), list[int]()
    network.instances = [network.instance(number) for number in range(150)]
    nodes = [node(item.name, f"incus://k8s/{item.uuid}") for item in network.instances]
    for count in (1, 100):
        ports = [port(number, node_port=30000 + number) for number in range(1, count + 1)]
        asked, balancers = service(f"web-{count}", ports=ports), network.started()
        for work in (balancers.ensure, balancers.ensure, balancers.update_nodes):
            turns.append(await turns_during(work(asked, nodes)))
    assert all(many > 10 * few for few, many in zip(turns[:3], turns[3:], strict=True)), turns
