"""Lists of Octavia that mix up records: what has another's ID, mark or port in one answer."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any, cast

import pytest

from ccm.cloud.testkit.harness import node, port, service
from ccm.errors import CloudError, NotFound
from ccm.model.objects import Json, mapping
from ccm.model.service import Service
from ccm.providers.openstack.api import OpenStackApi
from ccm.providers.openstack.calls import ApiCall
from ccm.providers.openstack.config import BalancerSection
from ccm.providers.openstack.ids import Cluster
from ccm.providers.openstack.lb.addresses import Addresses
from ccm.providers.openstack.lb.annotations import INTERNAL, PREFIX
from ccm.providers.openstack.lb.load_balancers import OctaviaLoadBalancers
from ccm.providers.openstack.lb.names import Names, Role
from ccm.providers.openstack.lb.networks import FIXED_KEPT, Networks
from ccm.providers.openstack.lb.request import read_request

CLUSTER = Cluster("kubernetes")
SERVER = "11111111-1111-4111-8111-111111111111"
NODE = node("node-1", f"openstack:///{SERVER}")
OWNER, SHARER = "theirs", "web"
OWNERS, OWN = (Names.of(service(name), CLUSTER) for name in (OWNER, SHARER))


def record_of(number: int, names: Names, monitor: str = "") -> tuple[Json, Json]:
    """A listener with its pool, of one Service on the load balancer."""
    common: Json = {"loadbalancers": [{"id": "lb"}], "protocol": "TCP"}
    listener = common | {"id": f"l-{number}", "protocol_port": number, "tags": names.listener_tags}
    pool = common | {"id": f"p-{number}", "healthmonitor_id": monitor, "members": [{"id": "m"}]}
    return listener | {"default_pool_id": pool["id"]}, pool


class Shared:
    """A load balancer with listeners of its owner, 443, and of who shares it, 80; the answer of a
    `turn` to a list of a kind mixes up a `field` of theirs.
    """

    region = "RegionOne"

    def __init__(self, kind: str, field: str, turn: int) -> None:
        self.kind, self.field, self.turn = kind, field, turn
        self.changes = list[str]()
        parts = [record_of(443, OWNERS, "m-443"), record_of(80, OWN, "m-80")]
        tags = [*OWNERS.tags(Role.OWNER), *OWN.tags(Role.SHARER)]
        self.record = {"id": "lb", "name": OWNERS.balancer, "tags": tags, "vip_subnet_id": "s"}
        self.record |= {"vip_address": "10.0.0.9", "provisioning_status": "ACTIVE"}
        self.lists: dict[str, list[Json]] = {
            "loadbalancers": [self.record],
            "listeners": [listener for listener, _ in parts],
            "pools": [pool for _, pool in parts],
            "members": [{"name": "node-1", "address": "10.0.0.1", "protocol_port": 30443}],
        }

    async def project_id(self) -> str:
        return "project"

    async def pages(self, operation: str, service: str, path: str, key: str, **_: str) -> Any:
        listed = deepcopy(self.lists[key])
        self.turn -= key == self.kind
        if key == self.kind and self.turn == 0:
            first, second = listed
            first[self.field], second[self.field] = second[self.field], first[self.field]
        return listed

    async def pages_at(self, operation: str, service: str, target: str, key: str) -> list[Json]:
        at = [{"ip_address": "10.0.0.1", "subnet_id": "s"}]
        port = {"id": "port", "device_id": SERVER, "fixed_ips": at, "project_id": "project"}
        return [port] if key == "ports" else []

    async def get(self, operation: str, service: str, path: str, **_: str) -> Json:
        kind, found = path.split("/")[2], path.rpartition("/")[2]
        if path.endswith("/status"):
            pools = [{**pool, "members": self.lists["members"]} for pool in self.lists["pools"]]
            tree = {"provisioning_status": "ACTIVE", "listeners": [{"pools": pools}]}
            return {"statuses": {"loadbalancer": tree}}
        if kind == "healthmonitors":
            return {"healthmonitor": {"id": found, "type": "HTTP"}}
        records = {item["id"]: item for item in self.lists[kind]}
        if found not in records:
            raise NotFound(path)
        return {kind.removesuffix("s"): records[found]}

    async def make(self, call: ApiCall, headers: Any = None) -> Json:
        self.changes.append(call.path)
        return {}


def asked_for(name: str, number: int) -> Service:
    asked = service(
        name, {f"{PREFIX}load-balancer-id": "lb"}, ports=[port(number, node_port=30000 + number)]
    )
    asked.raw["status"] = {"loadBalancer": {"ingress": [{"ip": "10.0.0.9"}]}}
    return asked


@pytest.mark.virtual_time
@pytest.mark.parametrize("turn", range(1, 5))
@pytest.mark.parametrize("operation", ["ensure", "update_nodes", "delete"])
@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("listeners", "id"),
        ("listeners", "tags"),
        ("listeners", "default_pool_id"),
        ("pools", "id"),
        ("pools", "healthmonitor_id"),
    ],
)
@pytest.mark.parametrize(("name", "own", "others"), [(OWNER, 443, 80), (SHARER, 80, 443)])
async def test_parts_that_one_list_mixes_up_have_no_other_one_changed(
    name: str, own: int, others: int, kind: str, field: str, operation: str, turn: int
) -> None:
    """Who shares a load balancer lost its listener, or another's members were behind its port."""
    there = Shared(kind, field, turn)
    balancers = OctaviaLoadBalancers(cast(OpenStackApi, there), BalancerSection(), {}, CLUSTER)
    arguments = (asked_for(name, own), *([] if operation == "delete" else [[NODE]]))
    for _ in range(4):
        with suppress(CloudError):
            await getattr(balancers, operation)(*arguments)
    assert there.changes
    assert not [path for path in there.changes if f"-{others}" in path]


class Beside(Shared):
    """Beside one that is not ours, as a person made it; a list of load balancers mixes them up."""

    def __init__(self, field: str, turn: int) -> None:
        super().__init__("loadbalancers", field, turn)
        listener, pool = record_of(80, OWN)
        theirs: Json = self.record | {"id": "lb-80", "name": "theirs", "tags": []}
        self.parts = {"lb-80": [listener | {"tags": []}, pool], "lb": [*record_of(443, OWNERS)]}
        self.lists["loadbalancers"] = [self.record | {"tags": [*OWNERS.tags(Role.OWNER)]}, theirs]
        self.lists["listeners"] = [found[0] for found in self.parts.values()]

    async def pages(self, operation: str, service: str, path: str, key: str, **query: str) -> Any:
        if found := self.parts.get(query.get("loadbalancer_id", "")):
            at = [{"id": query["loadbalancer_id"]}]
            return [deepcopy(found[key == "pools"]) | {"loadbalancers": at}]
        return await super().pages(operation, service, path, key, **query)

    async def make(self, call: ApiCall, headers: Any = None) -> Json:
        self.changes.append(f"{call.path} {call.body}")
        return {}


@pytest.mark.virtual_time
@pytest.mark.parametrize("turn", range(1, 5))
@pytest.mark.parametrize("operation", ["ensure", "update_nodes", "delete"])
@pytest.mark.parametrize("field", ["id", "name", "tags"])
@pytest.mark.parametrize(("number", "is_cascade"), [(8443, True), (80, False)])
async def test_load_balancers_that_one_list_mixes_up_have_no_other_one_changed(
    number: int, field: str, operation: str, turn: int, *, is_cascade: bool
) -> None:
    """A person's had its listeners changed, or one of ours, which stayed on it for good."""
    there = Beside(field, turn)
    section = BalancerSection(cascade_delete=is_cascade)
    balancers = OctaviaLoadBalancers(cast(OpenStackApi, there), section, {}, CLUSTER)
    asked = service(OWNER, ports=[port(number, node_port=30000 + number)])
    arguments = (asked, *([] if operation == "delete" else [[NODE]]))
    for _ in range(4):
        with suppress(CloudError):
            await getattr(balancers, operation)(*arguments)
    assert there.changes
    assert not [change for change in there.changes if "-80" in change], there.changes


class Leaving(Shared):
    """Its owner leaves while who shares it reads: a list may be from before."""

    def __init__(self) -> None:
        super().__init__("", "", 0)
        self.lists |= {"listeners": [], "pools": []}
        left = [*OWNERS.cluster_tags, *OWN.tags(Role.SHARER)]
        self.now = self.record | {"tags": left}

    async def get(self, operation: str, service: str, path: str, **more: str) -> Json:
        if operation == "GetLoadBalancer":
            self.lists["loadbalancers"] = [self.now]
        return await super().get(operation, service, path, **more)

    async def make(self, call: ApiCall, headers: Any = None) -> Json:
        self.now |= mapping(mapping(call.body).get("loadbalancer"))
        self.changes.append(call.method)
        return {}


@pytest.mark.virtual_time
async def test_who_leaves_a_load_balancer_beside_its_owner_marks_it_as_no_ones_again() -> None:
    """The last one leaves by a list from before: it stayed its owner's, who is gone, for good."""
    there = Leaving()
    balancers = OctaviaLoadBalancers(cast(OpenStackApi, there), BalancerSection(), {}, CLUSTER)
    for _ in range(3):
        with suppress(CloudError):
            await balancers.delete(asked_for(SHARER, 80))
    assert there.changes == ["DELETE"], there.now["tags"]


class Placed:
    """A load balancer with a port; a floating IP leads to another Service's."""

    def __init__(self) -> None:
        self.changes = list[str]()

    async def project_id(self) -> str:
        return "project"

    async def pages_at(self, operation: str, service: str, target: str, key: str) -> list[Json]:
        return [{"id": "f", "port_id": "led-to", "project_id": "project"}]

    async def get(self, operation: str, service: str, path: str, **_: str) -> Json:
        if operation == "GetFloatingIp":
            return {"floatingip": {"id": "f", "port_id": "led-to"}}
        return {"loadbalancer": {"id": "lb", "vip_port_id": "own"}}

    async def make(self, call: ApiCall, headers: Any = None) -> Json:
        self.changes.append(call.operation)
        return {"floatingip": {"id": "f", "port_id": mapping(call.body)["floatingip"]["port_id"]}}


@pytest.mark.parametrize(("is_internal", "port_id"), [(False, "inside"), (True, "led-to")])
async def test_a_load_balancer_that_is_listed_with_anothers_port_opens_and_closes_no_other(
    is_internal: bool, port_id: str
) -> None:
    """An internal Service got a floating IP, or an external one lost its own."""
    there = Placed()
    api = cast(OpenStackApi, there)
    annotations = {INTERNAL: "true"} if is_internal else {}
    asked = service("web", {**annotations, f"{PREFIX}floating-network-id": "public"})
    request = read_request(asked, BalancerSection(), {}, CLUSTER)
    addresses, record = Addresses(api, Networks(api)), {"id": "lb", "vip_address": "10.0.0.9"}
    with pytest.raises(CloudError, match="the port of lb"):
        await addresses.ensure(request, {**record, "vip_port_id": port_id}, Role.OWNER)
    assert there.changes == []
    await addresses.ensure(request, {**record, "vip_port_id": "own"}, Role.OWNER)
    assert there.changes == ([] if is_internal else ["CreateFloatingIp"])


class Led(Placed):
    """The floating IP is another Service's of this cluster."""

    async def pages_at(self, operation: str, service: str, target: str, key: str) -> list[Json]:
        (found,) = await super().pages_at(operation, service, target, key)
        return [found | {"description": OWNERS.floating_ip}]


async def test_a_load_balancer_that_is_listed_with_anothers_port_takes_no_floating_ip_with_it() -> (
    None
):
    """It was marked as the Service's that left, and went with it."""
    there = Led()
    api = cast(OpenStackApi, there)
    with pytest.raises(CloudError, match="the port of lb"):
        await Addresses(api, Networks(api)).mark(OWN, {"id": "lb", "vip_port_id": "led-to"})
    assert there.changes == []


class Servers:
    """Two servers with a port each, of which one list mixes up a field, or has one twice."""

    def __init__(self) -> None:
        at = ({"ip_address": f"10.0.0.{number}", "subnet_id": "s"} for number in (1, 2))
        self.ports: list[Json] = [
            {"device_id": f"s-{number}", "fixed_ips": [fixed]} for number, fixed in enumerate(at, 1)
        ]
        self.mixed: dict[int, Json] = {}

    async def pages_at(self, operation: str, service: str, target: str, key: str) -> list[Json]:
        mixed, self.mixed = self.mixed, {}
        return [{**port, **mixed.get(at, {})} for at, port in enumerate(self.ports)]


@pytest.mark.virtual_time
@pytest.mark.parametrize("field", ["device_id", "fixed_ips"])
@pytest.mark.parametrize("changed", [(0,), (1,), (0, 1)])
async def test_ports_that_one_list_mixes_up_take_no_server_out_of_pools(
    field: str, changed: Sequence[int]
) -> None:
    """A Node is reached by an address of its server: it left all of them for half an hour."""
    there = Servers()
    networks = Networks(cast(OpenStackApi, there))
    asked = ["s-1", "s-2"]
    expected = await networks.fixed_addresses(asked)
    there.mixed = {at: {field: there.ports[1 - at][field]} for at in changed}
    await asyncio.sleep(2 * FIXED_KEPT)
    with suppress(CloudError):
        assert await networks.fixed_addresses(asked) == expected
    assert await networks.fixed_addresses(asked) == expected
    for server_port in there.ports:
        server_port["fixed_ips"][0]["subnet_id"] = "other"
    await asyncio.sleep(2 * FIXED_KEPT)
    changes = await networks.fixed_addresses(asked)
    assert changes == {f"s-{at}": {f"10.0.0.{at}": "other"} for at in (1, 2)}


async def test_a_subnet_that_one_answer_mixes_up_opens_no_node_port_to_another() -> None:
    """Rules for Nodes let in whom the range of their subnet has: all, for half an hour."""
    ranges = ["0.0.0.0/0", *["10.0.0.0/24"] * 4]

    class Neutron:
        async def get(self, operation: str, service: str, path: str) -> Json:
            return {"subnet": {"id": "s", "network_id": "n", "cidr": ranges.pop(0)}}

    networks = Networks(cast(OpenStackApi, Neutron()))
    with suppress(CloudError):
        assert str((await networks.subnet("s")).cidr) == "10.0.0.0/24"
    assert str((await networks.subnet("s")).cidr) == "10.0.0.0/24"
