"""The nodes of the comparison on OpenStack: a server, and the Node that its kubelet registered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any

from ccm.model.objects import Json
from tests.labs.openstack.tenant import Tenant
from tests.peers.kubelets import EXCLUDED, NodeShape, node_of

ABSENT = "00000000-0000-4000-8000-000000000000"
GIVEN = "openstack:///{id}"
NET, OTHER, DUAL = "net", "other", "dual"
SUBNETS: Mapping[str, Mapping[str, str]] = {
    NET: {"net": "10.60.0.0/16"},
    OTHER: {"other": "10.61.0.0/16"},
    DUAL: {"dual-4": "10.62.0.0/16", "dual-6": "fd00:62::/64"},
}
"""By network, the subnets of the project."""


@dataclass(frozen=True, slots=True)
class Shape(NodeShape):
    """What a server is like; the words of its Node are its name and its `{id}`.

    `count` are the servers of its name; without any, its Node has a machine that never was.
    """

    networks: Sequence[str] = (NET,)
    count: int = 1
    server: Mapping[str, Any] = field(default_factory=dict)
    has_floating_ip: bool = False
    is_stopped: bool = False


SHAPES: dict[str, Shape] = {
    "plain": Shape(),
    "web": Shape(labels={"role": "web"}),
    "given-id": Shape(provider_id=GIVEN),
    "bare-id": Shape(provider_id="/{id}", labels=EXCLUDED),
    "two-networks": Shape((NET, OTHER)),
    "other-network": Shape((OTHER,)),
    "dual": Shape((DUAL,)),
    "floating": Shape(has_floating_ip=True, labels=EXCLUDED),
    "hostname": Shape(server={"metadata": {"hostname": "node.example.com"}}, labels=EXCLUDED),
    "stopped": Shape(is_stopped=True, provider_id=GIVEN, is_ready=False, labels=EXCLUDED),
    "other-name": Shape(name="someone", labels=EXCLUDED),
    "other-region": Shape(provider_id="openstack://elsewhere/{id}", labels=EXCLUDED),
    "other-cloud": Shape(provider_id="aws:///zone/i-0123456789abcdef0", labels=EXCLUDED),
    "twins": Shape(count=2, labels=EXCLUDED),
    "odd-flavor": Shape(server={"flavorRef": "{odd-flavor}"}, labels=EXCLUDED),
    "gone": Shape(count=0, provider_id=GIVEN, is_ready=False, is_initialized=True, has_pods=False),
    "gone-by-name": Shape(
        count=0, is_ready=False, is_initialized=True, labels=EXCLUDED, has_pods=False
    ),
    "leaving": Shape(),
}
LATER: dict[str, Shape] = {"late": Shape()}
"""Which join later; `leaving` leaves then."""
ALL = SHAPES | LATER


def launch(tenant: Tenant, names: Mapping[str, str]) -> dict[str, Json]:
    """The servers of all shapes, as they are when their kubelets start; `names` are IDs."""
    made: dict[str, list[str]] = {}
    for number, (name, shape) in enumerate(ALL.items()):
        made[name] = [
            _make(tenant, name, shape, number * 10 + copy + 10, names)
            for copy in range(shape.count)
        ]
    found: dict[str, Json] = {}
    for name, servers in made.items():
        running = [tenant.wait_for_server(one, "ACTIVE") for one in servers]
        found[name] = running[0] if running else {"id": ABSENT}
        if ALL[name].is_stopped:
            tenant.act(found[name]["id"], "os-stop", "SHUTOFF")
    return found


def _make(tenant: Tenant, name: str, shape: Shape, place: int, names: Mapping[str, str]) -> str:
    """One server whose addresses end with its place; its ID."""
    ports = _make_ports(tenant, shape.networks, place, names)
    more = {
        key: value.format(**names) if isinstance(value, str) else value
        for key, value in shape.server.items()
    }
    server = tenant.make_server(name, ports, **more)
    if shape.has_floating_ip:
        wanted = {"floating_network_id": names["public"], "port_id": ports[0]["id"]}
        tenant.make("neutron", "floatingip", wanted)
    return server


def _make_ports(
    tenant: Tenant, networks: Sequence[str], place: int, names: Mapping[str, str]
) -> list[Json]:
    """One in each network, in the order of their IDs.

    So Neutron lists them, and so upstream takes their addresses.
    """
    while True:
        made = [
            tenant.make("neutron", "port", _port_in(network, place, names)) for network in networks
        ]
        if made == sorted(made, key=lambda port: str(port["id"])):
            return made
        for port in made:
            tenant.delete("neutron", f"/ports/{port['id']}")


def _port_in(network: str, place: int, names: Mapping[str, str]) -> Json:
    addresses = [
        {"subnet_id": names[f"subnet-{subnet}"], "ip_address": _address(cidr, place)}
        for subnet, cidr in SUBNETS[network].items()
    ]
    return {"network_id": names[network], "fixed_ips": addresses}


def _address(cidr: str, place: int) -> str:
    network = cidr.partition("/")[0]
    return f"{network}{place:x}" if ":" in network else f"{network[:-1]}{place}"


def pool(cidr: str) -> dict[str, str]:
    """What Neutron gives away by itself: nothing that is a node's."""
    network = ip_network(cidr)
    return {
        "start": str(network[1 << 16 if network.version == 6 else 256]),
        "end": str(network[-2]),
    }


def manifest(name: str, machine: Json, pod_cidr: str) -> Json:
    """The Node as its kubelet registers it."""
    return node_of(ALL[name], {"name": name, "id": machine["id"]}, pod_cidr)
