"""A project of the lab, in which the controllers of OpenStack are compared."""

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from ccm.model.objects import Json
from ccm.providers.openstack.api import QUOTAS
from tests.labs.openstack.lab import Lab
from tests.labs.openstack.tenant import Calls, Tenant, is_write
from tests.peers import upstream
from tests.peers.openstack import nodes, picture, services
from tests.peers.world import UPSTREAM, Seen, World
from tests.support.running import Running, Supervisor, Where, wait_for

NETWORKS = "networks"
ODD = "big one/1"
"""A flavor's name that no label can have."""
WAIT = 120.0  # seconds at rest


@dataclass
class OpenStackWorld(World):
    """A project of its own."""

    cases = services.CASES
    shapes = tuple(nodes.SHAPES)
    late = tuple(nodes.LATER)
    node_configs = (NETWORKS,)
    settle_timeout = 600.0
    budgets = tuple(QUOTAS)

    tenant: Tenant = field(kw_only=True)
    calls: Calls = field(init=False)

    def prepare(self) -> None:
        self.calls = Calls()
        self.names |= {"public": self.tenant.world["networks"]["public"], "odd-flavor": flavor()}
        for network, subnets in nodes.SUBNETS.items():
            made = self.tenant.make("neutron", "network", {"name": network})["id"]
            self.names[network] = made
            for name, cidr in subnets.items():
                family = {"ip_version": 6 if ":" in cidr else 4, "cidr": cidr}
                options = {**family, "allocation_pools": [nodes.pool(cidr)]}
                self.names[f"subnet-{name}"] = self.tenant.make_subnet(name, made, options)
        subnet_ids = [one for name, one in self.names.items() if "subnet-" in name]
        self.names["router"] = self.tenant.make_router(subnet_ids)
        wanted = {"floating_network_id": self.names["public"]}
        spare = self.tenant.make("neutron", "floatingip", wanted)
        self.names |= {"spare": spare["id"], "spare-address": spare["floating_ip_address"]}
        self._make_balancers()
        self.machines |= nodes.launch(self.tenant, self.names)

    def _make_balancers(self) -> None:
        """What someone made by hand, with a floating IP and without."""
        for name in ("by-hand", "by-hand-inner"):
            wanted = {"name": name, "vip_subnet_id": self.names["subnet-net"]}
            body = {"loadbalancer": wanted}
            made = self.tenant.call("octavia", "POST", "/lbaas/loadbalancers", body)["loadbalancer"]
            self.names[name] = made["id"]
            if name == "by-hand":
                port = {"port_id": made["vip_port_id"]}
                wanted = {"floating_network_id": self.names["public"], **port}
                self.tenant.make("neutron", "floatingip", wanted)
        wait_for("Octavia has made both", lambda: not self._pending(), WAIT)

    def _pending(self) -> list[str]:
        listed = self.tenant.get("octavia", "/lbaas/loadbalancers")
        return [one["name"] for one in listed if one["provisioning_status"].startswith("PENDING")]

    def registration(self, shape: str, pod_cidr: str) -> Json:
        return nodes.manifest(shape, self.machines[shape], pod_cidr)

    def start(self, who: str, config: str) -> Running:
        path = self.directory / f"openstack{config}.conf"
        path.write_text(self.tenant.conf(**self._sections(config)))
        kubeconfig = self.cluster.kubeconfig("admin")
        flags = self.flags_of(who)
        if who == UPSTREAM:
            return upstream.openstack(self.directory, self.binaries, kubeconfig, path, *flags)
        where = Where(self.directory, kubeconfig, path)
        return Supervisor(where, "--cloud-provider=openstack", *flags)

    def _sections(self, config: str) -> dict[str, list[str]]:
        networks = [
            "public-network-name = other",
            "internal-network-name = net",
            "internal-network-name = dual",
            "ipv6-support-disabled = true",
            "address-sort-order = 10.61.0.0/16, 10.60.0.0/16",
        ]
        return {
            "Networking": networks if config == NETWORKS else [],
            "LoadBalancer": [f"subnet-id = {self.names['subnet-net']}"],
            'LoadBalancerClass "special"': ["floating-subnet = *dmz"],
            "Route": [f"router-id = {self.names['router']}"],
        }

    def balancer_calls(self) -> int:
        return sum(call["service"] == "octavia" for call in self.calls.read())

    def doings(self) -> object:
        return sum(call["service"] == "octavia" or is_write(call) for call in self.calls.read())

    def busy(self) -> list[str]:
        under_way = [one for one in self.calls.unanswered() if _is_doing(one)]
        return under_way or self._pending()

    def writes(self) -> list[str]:
        return [_described(call) for call in self.calls.writes()]

    def forget_calls(self) -> None:
        self.calls.forget()

    def roles(self) -> Mapping[str, str]:
        found = {one["id"]: shape for shape, one in self.machines.items()}
        cluster = self.request("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"]
        return found | picture.Project(self.tenant).roles() | {cluster: "cluster"}

    def seen(self) -> Seen:
        shapes = {one["id"]: shape for shape, one in self.machines.items()}
        return picture.Project(self.tenant).seen(shapes, self.names["router"])

    def is_served(self, service: str, port: int, seen: Set[str]) -> bool:
        balancer = service if service.startswith("by-hand") else f"lb-of-{service}"
        kinds = ("TCP", "UDP")
        return any(f"balancer {balancer} listener {port}/{kind} name" in seen for kind in kinds)


def flavor() -> str:
    """The ID of one whose name no label can have, which is there for all projects."""
    admin = Lab("admin", "admin")
    found = [one for one in admin.get("nova", "/flavors") if one["name"] == ODD]
    wanted = {"name": ODD, "ram": 512, "vcpus": 1, "disk": 1}
    made: Json = found[0] if found else _make_flavor(admin, wanted)
    return str(made["id"])


def _make_flavor(admin: Lab, wanted: Json) -> Json:
    made: Json = admin.call("nova", "POST", "/flavors", {"flavor": wanted})["flavor"]
    return made


def _is_doing(request: str) -> bool:
    """Whether what is under way is part of something that ends; Nodes are asked about for ever."""
    return "/lbaas/" in request or not request.startswith("GET ")


def _described(call: Json) -> str:
    """A write: the call, and what it says without the names of the fields."""
    path = call["path"].partition("/v2.0")[2] or call["path"]
    said = json.loads(call["body"]) if call["body"] else {}
    return " ".join([call["service"], call["method"], path, *_values(said)])


def _values(said: Any) -> list[str]:
    if isinstance(said, dict):
        return [text for key, one in sorted(said.items()) for text in (f"{key}:", *_values(one))]
    if isinstance(said, list):
        return [text for one in said for text in _values(one)]
    return [str(said)]
