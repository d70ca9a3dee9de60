"""Nodes whose kubelets write what they like: no other leaves, and no Service is led elsewhere."""

import asyncio
import time
from typing import Any, cast

import pytest

from ccm.cloud.testkit.harness import node, service
from ccm.model.objects import Json, Node
from ccm.providers.openstack.api import OpenStackApi
from ccm.providers.openstack.config import BalancerSection
from ccm.providers.openstack.ids import Cluster, server_id_of
from ccm.providers.openstack.lb.backends import choose
from ccm.providers.openstack.lb.networks import Networks, node_address
from ccm.providers.openstack.lb.request import IPV4, read_request
from ccm.providers.openstack.neutron import MOST_ADDRESSES

ID = "11111111-2222-3333-4444-5555555555{:02}"


class Neutron:
    """Ports of servers, and subnets whose IDs say of which network they are."""

    def __init__(self, ports: list[Json]) -> None:
        self._ports = ports

    async def pages_at(self, operation: str, service: str, target: str, key: str) -> list[Json]:
        return self._ports

    async def get(self, operation: str, service: str, path: str) -> Json:
        subnet = path.rpartition("/")[2]
        return {"subnet": {"id": subnet, "network_id": subnet, "cidr": "10.0.0.0/24"}}


def at(name: str, server: int, *addresses: str) -> Node:
    found = node(name, f"openstack:///{ID.format(server)}")
    listed = [{"type": "InternalIP", "address": address} for address in addresses]
    found.raw["status"] = {"addresses": listed}
    return found


async def test_one_kubelet_does_not_choose_the_subnet_of_load_balancers() -> None:
    """It may list the address of another card first, and names say who comes first."""
    addresses = {0: ("10.9.0.5", "10.0.0.5"), 1: ("10.0.0.6",), 2: ("10.0.0.7",)}
    subnets = {"10.0.0": "nodes", "10.9.0": "storage"}
    ports: list[Json] = [
        {
            "device_id": ID.format(number),
            "fixed_ips": [
                {"ip_address": item, "subnet_id": subnets[item.rpartition(".")[0]]}
                for item in listed
            ],
        }
        for number, listed in addresses.items()
    ]
    nodes = [at(f"node-{number}", number, *listed) for number, listed in addresses.items()]
    request = read_request(service(), BalancerSection(), {}, Cluster("kubernetes"))
    networks = Networks(cast(OpenStackApi, Neutron(ports)))
    found = await networks.vip_subnets(request.place, (IPV4,), nodes)
    assert [subnet.id for subnet in found] == ["nodes"]
    for second, item in enumerate(nodes[1::-1]):  # of two the older one
        item.raw["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:0{second}Z"
        item.raw["status"]["addresses"] = item.raw["status"]["addresses"][:1]
    found = await networks.vip_subnets(request.place, (IPV4,), nodes[:2])
    assert [subnet.id for subnet in found] == ["nodes"]


def test_of_thousands_of_addresses_of_a_node_few_are_looked_at() -> None:
    """For each Service, and whether or not there is such a server: any kubelet may write them."""
    looks = list[object]()

    class Counted(dict[str, str]):
        def get(self, key: str, default: Any = None) -> Any:
            looks.append(key)
            return super().get(key, default)

    listed = [
        Counted(type="InternalIP", address=f"10.0.{it >> 8}.{it & 255}") for it in range(5000)
    ]
    hostile, fixed = at("node-1", 1), {"10.0.0.9": "nodes"}
    hostile.raw["status"] = {"addresses": listed}
    assert node_address(hostile, IPV4, {}, "nodes") == ""
    assert looks == []
    assert node_address(hostile, IPV4, fixed, "nodes") == "10.0.0.9"
    assert len(looks) <= 3 * MOST_ADDRESSES


def test_a_server_of_another_network_takes_no_address_of_a_node() -> None:
    """Networks of a project may have the same addresses, and a kubelet names any server."""
    request = read_request(service(), BalancerSection(), {}, Cluster("kubernetes"))
    nodes = [at("a-hostile", 0, "10.0.0.5"), at("node-1", 1, "10.0.0.5")]
    fixed = {ID.format(0): {"10.0.0.5": "elsewhere"}, ID.format(1): {"10.0.0.5": "nodes"}}
    found = choose(request, nodes, fixed, "nodes")
    assert found.servers == {"node-1": ID.format(1)}


def test_with_ovn_a_member_of_another_subnet_says_of_which() -> None:
    """One that does not is refused, and with it the members of all other Nodes."""
    section = BalancerSection(lb_provider="ovn")
    request = read_request(service(), section, {}, Cluster("kubernetes"))
    nodes = [at("hostile", 0, "10.9.0.7"), at("node-1", 1, "10.0.0.5")]
    fixed = {ID.format(0): {"10.9.0.7": "elsewhere"}, ID.format(1): {"10.0.0.5": "nodes"}}
    members = choose(request, nodes, fixed, "nodes").members(request, 30080)
    subnets = {member.name: member.subnet_id for member in members}
    assert subnets == {"hostile": "elsewhere", "node-1": "nodes"}


@pytest.mark.virtual_time
async def test_who_gets_the_address_of_a_server_that_is_gone_takes_its_place() -> None:
    """The former one's kubelet may keep its Node, which is older, for ever."""
    request = read_request(service(), BalancerSection(), {}, Cluster("kubernetes"))
    fixed_ips = [{"ip_address": "10.0.0.5", "subnet_id": "nodes"}]
    ports: list[Json] = [{"device_id": ID.format(0), "fixed_ips": fixed_ips}]
    networks = Networks(cast(OpenStackApi, Neutron(ports)))
    nodes = [at("a-hostile", 0, "10.0.0.5"), at("node-1", 1, "10.0.0.5")]
    for server, asked in ((0, nodes[:1]), (1, nodes), (2, nodes[:1])):
        ports[0]["device_id"] = ID.format(server)
        await asyncio.sleep(60.0)
        servers = [server_id_of(node.provider_id) for node in asked]
        fixed = await networks.fixed_addresses(servers)
        found = choose(request, asked, fixed, "nodes").servers
        assert [*found.values()] == [ID.format(server)] * (server < 2)


@pytest.mark.virtual_time
async def test_a_server_that_is_not_there_has_services_wait_for_no_read_each() -> None:
    """A Node may name any; one that is new may have a port in a moment, so it is looked for."""
    reads = list[float]()

    class Slow(Neutron):
        async def pages_at(self, operation: str, service: str, target: str, key: str) -> list[Json]:
            reads.append(time.monotonic())
            await asyncio.sleep(1.0)
            return await super().pages_at(operation, service, target, key)

    fixed_ips = [{"ip_address": "10.0.0.5", "subnet_id": "nodes"}]
    networks = Networks(cast(OpenStackApi, Slow([{"device_id": "there", "fixed_ips": fixed_ips}])))
    asked = ["there", "made-up"]
    found = await asyncio.gather(*(networks.fixed_addresses(asked) for _ in range(50)))
    assert found == [{"there": {"10.0.0.5": "nodes"}}] * 50
    assert len(reads) <= 3
    await networks.fixed_addresses(asked)
    assert len(reads) <= 4
