"""What belongs to a load balancer, decided without a cloud: floating IPs, Nodes, groups."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

import pytest

from ccm.cloud.gate import current_owner, with_priority
from ccm.cloud.testkit.harness import port, service
from ccm.decide.budget import Priority
from ccm.errors import Refused, TakenByAnother
from ccm.model.objects import Json, Node
from ccm.model.service import Service
from ccm.providers.openstack.calls import ApiCall
from ccm.providers.openstack.config import BalancerSection
from ccm.providers.openstack.ids import Cluster
from ccm.providers.openstack.lb import floating_ips as floating
from ccm.providers.openstack.lb.addresses import Addresses
from ccm.providers.openstack.lb.annotations import INTERNAL, PREFIX
from ccm.providers.openstack.lb.backends import choose
from ccm.providers.openstack.lb.load_balancers import OctaviaLoadBalancers
from ccm.providers.openstack.lb.names import Names, Role
from ccm.providers.openstack.lb.networks import (
    Networks,
    matching_subnets,
    node_address,
    read_subnet,
)
from ccm.providers.openstack.lb.octavia import Octavia
from ccm.providers.openstack.lb.plan import ObservedBalancer, check_ports
from ccm.providers.openstack.lb.request import read_request
from ccm.providers.openstack.lb.security_groups import (
    IngressRule,
    Membership,
    plan_ports,
    plan_rules,
)
from tests.support.deadlines import within
from tests.support.waiting import let_run

CLUSTER = Cluster("kubernetes")
NAMES = Names.of(service(), CLUSTER)


# Floating IPs


def fip(address: str, port_id: str = "", description: str = "") -> Json:
    return {
        "id": address, "floating_ip_address": address, "port_id": port_id or None,
        "description": description,
    }  # fmt: skip


OURS, UPSTREAMS = NAMES.floating_ip, NAMES.upstream_floating_ip
INSIDE = service("web", {INTERNAL: "true"})
KEPT = service("web", {INTERNAL: "true", f"{PREFIX}keep-floatingip": "true"})


@pytest.mark.parametrize(
    ("asked", "there", "expected"),
    [
        (service(), [], "new "),
        (service(), [fip("1", "vip")], None),
        (service(), [fip("1", "", OURS)], "PUT 1 vip"),
        (service(), [fip("1", "", UPSTREAMS)], "new "),
        (service(loadBalancerIP="2"), [fip("1", "", OURS), fip("2")], "PUT 2 vip"),
        (service(loadBalancerIP="2"), [], "new 2"),
        (service(loadBalancerIP="2"), [fip("1", "vip"), fip("2")], None),
        (INSIDE, [], None),
        (INSIDE, [fip("1", "vip", OURS)], "DELETE 1"),
        (INSIDE, [fip("1", "vip", UPSTREAMS)], "DELETE 1"),
        (INSIDE, [fip("1", "vip", "by hand")], "PUT 1 None"),
        (KEPT, [fip("1", "vip", OURS)], "PUT 1 None"),
    ],
)
def test_a_floating_ip_is_attached_made_or_given_back(
    asked: Service, there: list[Json], expected: str | None
) -> None:
    request = read_request(asked, BalancerSection(), {}, CLUSTER)
    step = next(floating.plan(request, "vip", there), None)
    assert shown(step) == expected


def shown(step: ApiCall | floating.NeedsFloatingIp | None) -> str | None:
    match step:
        case floating.NeedsFloatingIp(address):
            return f"new {address}"
        case ApiCall(method=method, path=path, body=body):
            attached = f" {body['floatingip']['port_id']}" if body else ""
            return f"{method} {path.removeprefix('/floatingips/')}{attached}"
    return None


def test_a_floating_ip_in_use_is_not_stolen() -> None:
    request = read_request(service(loadBalancerIP="2"), BalancerSection(), {}, CLUSTER)
    with pytest.raises(Refused, match="another port"):
        list(floating.plan(request, "vip", [fip("2", "somewhere")]))


@pytest.mark.parametrize(
    ("description", "is_refused"),
    [
        (Names.of(service("shop"), CLUSTER).floating_ip, True),
        (Names.of(service("shop"), CLUSTER).upstream_floating_ip, True),
        (f"{Names.of(service(), Cluster('other')).upstream_floating_ip} (u-2)", True),
        (OURS, False),
        (UPSTREAMS, False),
        (f"{UPSTREAMS} (of the Service before)", False),
        (Names.of(service("n" * 250), CLUSTER).floating_ip, True),
        ("by hand", False),
    ],
)
def test_an_address_that_was_made_for_another_service_is_refused(
    description: str, is_refused: bool
) -> None:
    request = read_request(service(loadBalancerIP="2"), BalancerSection(), {}, CLUSTER)
    with pytest.raises(Refused, match="another Service") if is_refused else nullcontext():
        assert (
            shown(next(floating.plan(request, "vip", [fip("2", "", description)]))) == "PUT 2 vip"
        )


@pytest.mark.parametrize(
    ("record", "is_foreign", "needs_proof"),
    [
        ({"name": "kube_service_other_default_web"}, True, True),
        ({"name": f"kube_service_{CLUSTER.name}_other_shop_web"}, True, False),
        ({"name": f"kube_service_{CLUSTER.name}_shop_web"}, False, False),
        ({"name": NAMES.balancer, "tags": [NAMES.balancer]}, False, True),
        ({"name": NAMES.balancer, "tags": NAMES.tags(Role.OWNER)}, False, False),
        ({"name": "by-hand", "tags": NAMES.tags(Role.SHARER)}, False, False),
        ({"name": "by-hand"}, False, False),
        (
            {"name": "x", "tags": Names.of(service("shop"), Cluster("other")).tags(Role.OWNER)},
            True,
            False,
        ),
        ({"name": "x", "tags": Names.of(service("shop"), CLUSTER).tags(Role.OWNER)}, False, False),
    ],
)
def test_names_of_load_balancers_prove_nothing(
    record: Json, is_foreign: bool, needs_proof: bool
) -> None:
    served = service()
    served.raw["status"] = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    names = Names.of(served, CLUSTER)
    assert (names.is_foreign(record), names.needs_proof(record)) == (is_foreign, needs_proof)


def test_the_operator_says_whether_services_name_addresses() -> None:
    """What a load balancer has already stays."""
    section = BalancerSection(allow_requested_ip=False)
    request = read_request(service(loadBalancerIP="2"), section, {}, CLUSTER)
    with pytest.raises(Refused, match="allow-requested-ip"):
        list(floating.plan(request, "vip", [fip("2")]))
    assert not list(floating.plan(request, "vip", [fip("2", "vip")]))


def test_only_what_was_made_for_the_service_is_released() -> None:
    other = "Floating IP for Kubernetes external service default/web from cluster other (u-2)"
    there = [
        fip("1", "", OURS), fip("2", "gone", OURS), fip("3", "elsewhere", OURS),
        fip("4", "", other), fip("5", "", UPSTREAMS), fip("6", "", "mine"),
    ]  # fmt: skip
    calls = floating.plan_release(NAMES, {"gone", ""}, there)
    assert [one.path for one in calls] == ["/floatingips/1", "/floatingips/2"]


@pytest.mark.parametrize(
    ("described", "is_marked"),
    [
        (UPSTREAMS, True),
        (OURS.replace("web", "former"), True),
        (OURS.replace("cluster kubernetes", "cluster other"), False),
        ("mine", False),
        (OURS, False),
    ],
)
def test_the_floating_ip_of_what_goes_is_marked_if_we_made_it(
    described: str, is_marked: bool
) -> None:
    there = [fip("1", "vip", described.replace(NAMES.uid, "another") if is_marked else described)]
    calls = list(floating.plan_mark(NAMES, "vip", there))
    assert [one.body for one in calls] == [{"floatingip": {"description": OURS}}] * is_marked


SUBNETS = [
    read_subnet({"id": name, "name": name, "cidr": "203.0.113.0/24", "tags": tags})
    for name, tags in (("public", []), ("public-dmz", ["dmz"]), ("other", ["dmz", "slow"]))
]


@pytest.mark.parametrize(
    ("pattern", "tags", "expected"),
    [
        ("public", "", ["public"]),
        ("public*", "", ["public", "public-dmz"]),
        ("!public*", "", ["other"]),
        ("~public(-dmz)?", "", ["public", "public-dmz"]),
        ("!~pub.*", "", ["other"]),
        ("", "dmz", ["public-dmz", "other"]),
        ("", "slow,fast", ["other"]),
        ("", "&dmz,slow", ["other"]),
        ("", "!dmz", ["public"]),
        ("", "!&dmz,slow", ["public", "public-dmz"]),
        ("public*", "dmz", ["public-dmz"]),
    ],
)
def test_floating_subnets_are_chosen_by_name_and_tags(
    pattern: str, tags: str, expected: list[str]
) -> None:
    assert [one.id for one in matching_subnets(SUBNETS, pattern, tags)] == expected


CHOICES = 9 * "(.|[^a]|[^b]|[^c]|[^d]|[^e]|[^f]|[^g])"
"""Without any repetition: the ways to match grow eightfold with each character."""


@pytest.mark.parametrize(
    "pattern",
    [
        "~(a+)+b",
        "~(a|a)*b",
        "~.*.*.*.*.*b",
        "~(",
        r"~(a*)\1",
        f"~{CHOICES}b",
        f"~{'(' * 1000}a{')' * 1000}",
        "~a{99999999999}",
        10_000 * "[",
    ],
    ids=lambda pattern: pattern[:16],
)
def test_a_pattern_that_is_none_or_takes_for_ever_is_refused(pattern: str) -> None:
    with pytest.raises(Refused, match="floating-subnet"):
        matching_subnets(SUBNETS, pattern, "")


class FakeNeutron:
    """Answers with external networks, and with floating IPs as they are made."""

    def __init__(self, *networks: str) -> None:
        self.networks, self.made = networks, list[Json]()

    async def project_id(self) -> str:
        return "project"

    async def pages_at(self, operation: str, service: str, target: str, key: str) -> list[Json]:
        return [{"id": one} for one in self.networks] if key == "networks" else []

    async def get(self, operation: str, service: str, path: str) -> Json:
        return {"loadbalancer": {"id": "lb", "vip_port_id": "vip"}}

    async def make(self, call: ApiCall) -> Json:
        self.made.append(call.body["floatingip"] if call.body else {})
        return {"floatingip": {**self.made[-1], "floating_ip_address": "203.0.113.9"}}


@pytest.mark.parametrize(
    ("networks", "address", "warnings"), [((), "10.0.0.9", 1), (("public",), "203.0.113.9", 0)]
)
async def test_the_only_external_network_is_found(
    networks: tuple[str, ...], address: str, warnings: int
) -> None:
    """OS65."""
    neutron: Any = FakeNeutron(*networks)
    request = read_request(service(), BalancerSection(), {}, CLUSTER)
    record = {"id": "lb", "vip_address": "10.0.0.9", "vip_port_id": "vip"}
    found = await Addresses(neutron, Networks(neutron)).ensure(request, record, Role.OWNER)
    assert (found, len(request.annotations.warnings)) == ([address], warnings)


async def test_of_two_external_networks_none_is_taken() -> None:
    neutron: Any = FakeNeutron("one", "two")
    request = read_request(service(), BalancerSection(), {}, CLUSTER)
    record = {"id": "lb", "vip_address": "10.0.0.9", "vip_port_id": "vip"}
    with pytest.raises(Refused, match="floating-network-id"):
        await Addresses(neutron, Networks(neutron)).ensure(request, record, Role.OWNER)


# Nodes


def node(name: str, *addresses: str, **labels: str) -> Node:
    return Node(
        {
            "metadata": {"name": name, "labels": labels},
            "spec": {"providerID": f"openstack:///{server(name)}"},
            "status": {"addresses": [{"type": "InternalIP", "address": a} for a in addresses]},
        }
    )


def server(name: str) -> str:
    return f"00000000-0000-4000-8000-{ord(name):012}"


FIXED: Mapping[str, str] = {"10.9.0.5": "other", "10.0.0.5": "nodes", "fd00::5": "six"}


@pytest.mark.parametrize(
    ("addresses", "family", "expected"),
    [
        (["10.9.0.5", "10.0.0.5"], "IPv4", "10.0.0.5"),
        (["10.9.0.5"], "IPv4", "10.9.0.5"),
        (["10.0.0.5", "fd00::5"], "IPv6", "fd00::5"),
        (["10.0.0.66", "169.254.169.254"], "IPv4", ""),
        (["garbage"], "IPv4", ""),
    ],
)
def test_a_node_is_reached_where_the_cloud_says_that_its_server_is(
    addresses: list[str], family: str, expected: str
) -> None:
    assert node_address(node("a", *addresses), family, FIXED, "nodes") == expected


def test_nodes_are_chosen_by_label_each_address_once() -> None:
    """OS49, OS102."""
    asked = service("web", {f"{PREFIX}node-selector": "pool=web,fast"})
    request = read_request(asked, BalancerSection(), {}, CLUSTER)
    hosts = [
        node("a", "10.0.0.5", pool="web", fast=""),
        node("b", "10.0.0.5", pool="web", fast="yes"),
        node("c", "10.0.0.5", pool="db", fast=""),
        node("d", "10.0.0.5"),
    ]
    fixed = {server(one.name): FIXED for one in hosts}
    found = choose(request, hosts, fixed, "nodes")
    assert found.addresses == {"a": "10.0.0.5"}
    assert {one.subnet_id for one in found.members(request, 30080)} == {"nodes"}
    assert {one.subnet_id for one in replace(found, subnet_id="x").members(request, 1)} == {""}
    assert not choose(request, hosts[2:], fixed, "nodes").addresses
    assert request.annotations.warnings == ["no Node has the labels of annotation node-selector"]


# Security groups


def test_rules_are_added_and_taken_and_those_for_what_goes_out_stay() -> None:
    def rule(rule_id: str, direction: str, number: int | None) -> Json:
        return {
            "id": rule_id, "direction": direction, "protocol": "tcp", "port_range_min": number,
            "port_range_max": number, "remote_ip_prefix": "10.0.0.0/16",
        }  # fmt: skip

    group = {
        "id": "g",
        "security_group_rules": [
            rule("out", "egress", None), rule("old", "ingress", 1), rule("right", "ingress", 2),
        ],
    }  # fmt: skip
    wanted = [IngressRule("tcp", number, "10.0.0.0/16") for number in (2, 3, 4)]
    create, delete = plan_rules(wanted, group)
    assert create.body
    made_ports = [one["port_range_min"] for one in create.body["security_group_rules"]]
    assert (made_ports, delete.path) == ([3, 4], "/security-group-rules/old")


def test_groups_of_several_services_are_put_on_ports_by_one_change_each() -> None:
    def nova_port(name: str, groups: list[str], *, is_secured: bool = True) -> Json:
        return {
            "id": name, "device_id": server(name), "fixed_ips": [{"ip_address": f"10.0.0.{name}"}],
            "security_groups": groups, "port_security_enabled": is_secured,
        }  # fmt: skip

    ports = [
        nova_port("1", ["nodes"]), nova_port("2", ["nodes", "x", "y"]), nova_port("3", ["x"]),
        nova_port("4", [], is_secured=False),
    ]  # fmt: skip
    on = {server(name): f"10.0.0.{name}" for name in "124"}
    calls = plan_ports([Membership("x", on), Membership("y", on)], ports)
    assert {one.path: one.body and one.body["port"]["security_groups"] for one in calls} == {
        "/ports/1": ["nodes", "x", "y"],
        "/ports/3": [],
    }


# What others wait for


class BusyNamespace(FakeNeutron):
    """Has any subnet and no ports; what is in the turn of `theirs` has no answer."""

    async def get(self, operation: str, service: str, path: str, **query: str) -> Json:
        await self._turn()
        found = {"id": path.rpartition("/")[2], "network_id": "n", "cidr": "10.0.0.0/24"}
        return {"subnet": found}

    async def pages_at(self, operation: str, service: str, target: str, key: str) -> list[Json]:
        await self._turn()
        return []

    async def pages(
        self, operation: str, service: str, path: str, key: str, **query: str
    ) -> list[Json]:
        await self._turn()
        return [{"id": name, "provisioning_status": "ACTIVE"} for name in ("lb-1", "lb-2")]

    async def _turn(self) -> None:
        if current_owner() == "theirs":
            await asyncio.Event().wait()


READS: Mapping[str, Callable[[Networks], Awaitable[Any]]] = {
    "subnet": lambda networks: networks.subnet("nodes"),
    "subnets": lambda networks: networks.subnets_of("n"),
    "external": lambda networks: networks.external_networks(),
    "addresses": lambda networks: networks.fixed_addresses(["s"]),
}


async def check_turns(theirs: Awaitable[Any], own: Awaitable[Any]) -> Any:
    """What one read gives while another one, before it, waits for the turn of its namespace."""

    async def read(owner: str, what: Awaitable[Any]) -> Any:
        with with_priority(Priority.REFRESH, owner):
            return await what

    waiting = asyncio.create_task(read("theirs", theirs))
    await let_run()
    try:
        async with within():
            return await read("own", own)
    finally:
        waiting.cancel()


@pytest.mark.parametrize("before", READS.values(), ids=READS)
@pytest.mark.parametrize("read", READS.values(), ids=READS)
async def test_no_read_of_neutron_waits_for_the_turn_of_another_namespace(
    before: Callable[[Networks], Awaitable[Any]], read: Callable[[Networks], Awaitable[Any]]
) -> None:
    """A tenant may name a network that no one has, and another one each time."""
    networks = Networks(cast(Any, BusyNamespace()))
    await check_turns(before(networks), read(networks))


async def test_no_look_at_octavia_waits_for_the_turn_of_another_namespace() -> None:
    octavia = Octavia(cast(Any, BusyNamespace()))
    for name in ("lb-1", "lb-2"):
        octavia.waiting.begin(name, "CreateLoadBalancer", f"tag-of-{name}")
    found = await check_turns(octavia.look("lb-1"), octavia.look("lb-2"))
    assert found["id"] == "lb-2"


@pytest.mark.parametrize("is_on", [False, True])
def test_who_shares_a_load_balancer_has_a_node_port_for_each_port(is_on: bool) -> None:
    """Nodes serve the others at its address as well, where they may be its owner's."""
    balancers = OctaviaLoadBalancers(cast(Any, FakeNeutron()), BalancerSection(), {}, CLUSTER)
    ports = [port(8443, node_port=30443), {"port": 443, "protocol": "TCP"}]
    asked = service("hostile", ports=ports, allocateLoadBalancerNodePorts=False)
    tags = Names.of(service("victim"), CLUSTER).tags(Role.OWNER)
    own = Names.of(asked, CLUSTER).tags(Role.SHARER) if is_on else []
    record = {"id": "lb-1", "name": "theirs", "tags": [*tags, *own]}
    request = read_request(asked, BalancerSection(), {}, CLUSTER)
    with pytest.raises(TakenByAnother, match="each port needs a node port"):
        balancers._check_share(request, ObservedBalancer(record, Role.SHARER))
    balancers._check_share(request, ObservedBalancer(record, Role.OWNER))


@pytest.mark.parametrize(("role", "is_taken"), [(Role.SHARER, True), (Role.OWNER, False)])
def test_who_shares_a_load_balancer_gives_it_up_with_a_port_of_another(
    role: Role, is_taken: bool
) -> None:
    """As of the one before the API server, which no Service has."""
    asked = service("hostile", ports=[port(6443, node_port=30443)])
    names, request = Names.of(asked, CLUSTER), read_request(asked, BalancerSection(), {}, CLUSTER)
    listener = {"id": "l-1", "protocol": "TCP", "protocol_port": 6443, "tags": ["theirs"]}
    observed = ObservedBalancer({"id": "lb-1", "tags": names.tags(role)}, role, [listener])
    with pytest.raises(Refused, match="used by another listener") as raised:
        check_ports(names, request.node_ports(), observed)
    assert isinstance(raised.value, TakenByAnother) is is_taken
