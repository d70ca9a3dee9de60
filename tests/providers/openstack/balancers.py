"""A project of its own in the lab for tests of load balancers, and the provider at work in it."""

import asyncio
import fcntl
import subprocess
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from ccm.cloud.testkit.harness import port
from ccm.errors import RetryAfter
from ccm.model.cloud import Balancer
from ccm.model.objects import Json, Node
from ccm.model.service import Service
from ccm.providers.openstack.lb.annotations import PREFIX
from ccm.providers.openstack.lb.load_balancers import OctaviaLoadBalancers
from tests.labs.openstack.lab import STATE, WAIT, Lab, make_project
from tests.providers.openstack.started import Started
from tests.support.running import wait_for

T = TypeVar("T")

PROJECT = "balancers"
CALLER = "balancers-test"  # in the User-Agent
NODES = 10
CIDR = "10.50.0.0/16"
ATTEMPTS = 80
LOCAL: dict[str, Any] = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}


@contextmanager
def alone() -> Iterator[None]:
    """Nobody else, who may run tests in the same lab, uses the project inside."""
    with (STATE / f"{PROJECT}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class BalancerLab(Lab):
    """The project with its network and servers, made once in a lab's life."""

    def __init__(self) -> None:
        make_project(PROJECT)
        super().__init__(PROJECT, PROJECT)
        if not self.get("neutron", f"/networks?name={PROJECT}"):
            self._make_network()
        (network,) = self.get("neutron", f"/networks?name={PROJECT}")
        (subnet,) = self.get("neutron", f"/subnets?name={PROJECT}")
        (router,) = self.get("neutron", f"/routers?name={PROJECT}")
        self.subnet, self.router = subnet["id"], router["id"]
        self.world["networks"][PROJECT] = network["id"]
        count = len(self.get("nova", "/servers"))
        self.create_servers([f"balancers-{index}" for index in range(count, NODES)], PROJECT)
        self.nodes = sorted(
            map(_node_of, self.get("nova", "/servers/detail")), key=lambda n: n.name
        )

    def _make_network(self) -> None:
        wanted = {"name": PROJECT}
        network = self.call("neutron", "POST", "/networks", {"network": wanted})["network"]
        subnet = {"network_id": network["id"], "cidr": CIDR, "ip_version": 4, **wanted}
        made = self.call("neutron", "POST", "/subnets", {"subnet": subnet})["subnet"]
        outer = {"external_gateway_info": {"network_id": self.world["networks"]["public"]}}
        router = self.call("neutron", "POST", "/routers", {"router": {**wanted, **outer}})["router"]
        path = f"/routers/{router['id']}/add_router_interface"
        self.call("neutron", "PUT", path, {"subnet_id": made["id"]})

    def config_with(self, *lines: str, subnet: str = "") -> str:
        """A cloud.conf for this project, with more lines in [LoadBalancer]."""
        usual = [f"subnet-id = {subnet or self.subnet}"]
        if not any(line.startswith("floating-network-id") for line in lines):
            usual.append(f"floating-network-id = {self.world['networks']['public']}")
        return "\n".join(
            [
                "[Global]",
                f"auth-url = {self.world['endpoints']['keystone']}/v3",
                f"username = {PROJECT}",
                "password = secret",
                f"tenant-name = {PROJECT}",
                "domain-id = default",
                "[LoadBalancer]",
                *usual,
                *lines,
            ]
        )

    def dual_network(self) -> str:
        """The ID of a network of both families."""
        name = f"{PROJECT}-dual"
        if found := self.get("neutron", f"/networks?name={name}"):
            return str(found[0]["id"])
        made = self.call("neutron", "POST", "/networks", {"network": {"name": name}})["network"]
        for version, cidr in ((4, "10.51.0.0/16"), (6, "fd00:51::/64")):
            subnet = {"network_id": made["id"], "cidr": cidr, "ip_version": version}
            self.call("neutron", "POST", "/subnets", {"subnet": subnet})
        return str(made["id"])

    # What there is

    def balancers(self) -> list[Json]:
        return list(self.get("octavia", "/lbaas/loadbalancers"))

    def balancer(self) -> Json:
        """The only one."""
        (found,) = self.balancers()
        return dict(found)

    def parts(self, kind: str) -> list[Json]:
        """Listeners or pools of what there is."""
        there = {one["id"] for one in self.balancers()}
        listed = self.get("octavia", f"/lbaas/{kind}")
        return [one for one in listed if one["loadbalancers"][0]["id"] in there]

    def monitors(self) -> list[Json]:
        return [
            self.get("octavia", f"/lbaas/healthmonitors/{pool['healthmonitor_id']}")
            for pool in self.parts("pools")
            if pool["healthmonitor_id"]
        ]

    def members(self) -> list[set[str]]:
        """The names of the Nodes in each pool."""
        pools = self.parts("pools")
        lists = (self.get("octavia", f"/lbaas/pools/{one['id']}/members") for one in pools)
        return [{member["name"] for member in listed} for listed in lists]

    def floating_ips(self) -> list[Json]:
        return list(self.get("neutron", "/floatingips"))

    def groups(self) -> list[Json]:
        listed = self.get("neutron", "/security-groups")
        return [one for one in listed if one["name"].startswith("lb-sg-")]

    def resources(self) -> Counter[str]:
        """How much there is of all that a load balancer leaves behind."""
        kinds = {
            "balancers": self.balancers(),
            "floating IPs": self.floating_ips(),
            "groups": self.groups(),
        }
        return Counter({kind: len(some) for kind, some in kinds.items()})

    def act_on_balancer(self, method: str, path: str, body: Json | None = None) -> Json:
        """A change by hand, once Octavia has time for it; returns when it is done."""
        answer: Json = self.call("octavia", method, f"/lbaas{path}", body)
        self.settle()
        return answer

    def settle(self, seconds: float = WAIT) -> None:
        """Return when Octavia is at work on nothing."""
        wait_for("nothing is PENDING", lambda: not self._pending(), seconds)

    def _pending(self) -> int:
        """How many load balancers Octavia is at work on; by its database, for Octavia's sake."""
        return int(
            self._sql("SELECT COUNT(*) FROM load_balancer WHERE provisioning_status LIKE 'PEND%'")
        )

    def has_members(self, count: int) -> bool:
        """Whether each pool has so many, and Octavia is at work on nothing."""
        working = (
            "SELECT COUNT(*) FROM member WHERE pool_id=pool.id AND provisioning_status='ACTIVE'"
        )
        there = (
            "SELECT id FROM load_balancer WHERE provisioning_status<>'DELETED'"
            f" AND project_id='{self.project_id}'"
        )
        others = self._sql(
            f"SELECT COUNT(*) FROM pool WHERE load_balancer_id IN ({there})"
            f" AND ({working}) <> {count}"
        )
        return int(others) == 0 == self._pending()

    def play(self, balancer_id: str, state: str) -> None:
        """Be the driver of a load balancer that has none: nothing of Octavia's sets its state."""
        self._sql(
            f"UPDATE load_balancer SET provisioning_status='{state}' WHERE id='{balancer_id}'"
        )

    def date(self, made_at: str, all_but: str) -> None:
        """Let all load balancers but one be made at another time than they were."""
        self._sql(f"UPDATE load_balancer SET created_at='{made_at}' WHERE id<>'{all_but}'")

    def _sql(self, statement: str) -> str:
        socket = STATE / "mysql.sock"
        command = ["mariadb", f"--socket={socket}", "-uroot", "-N", "octavia", "-e", statement]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def create_balancer(
        self, name: str, ports: Iterable[int], *, has_monitors: bool = False
    ) -> None:
        """One by hand, with a member for each node behind each port."""
        members = [
            {"address": node.addresses[0]["address"], "protocol_port": 30080, "name": node.name}
            for node in self.nodes
        ]
        pool: Json = {"protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "members": members}
        if has_monitors:
            times = {"delay": 5, "timeout": 3, "max_retries": 1}
            pool["healthmonitor"] = {"type": "TCP", **times}
        listeners = [
            {
                "protocol": "TCP",
                "protocol_port": number,
                "default_pool": {"name": f"pool-{number}", **pool},
            }
            for number in ports
        ]
        body = {"name": name, "vip_subnet_id": self.subnet, "listeners": listeners}
        self.call("octavia", "POST", "/lbaas/loadbalancers", {"loadbalancer": body})

    def clear_routes(self) -> None:
        """Take away what the router leads, the marks of that, and the pairs of the servers."""
        none: Json = {"router": {"routes": []}}
        self.call("neutron", "PUT", f"/routers/{self.router}", none)
        for group in self.get("neutron", "/address-groups"):
            self.delete("neutron", f"/address-groups/{group['id']}")
        for one in self.get("neutron", "/ports?device_owner=compute:zone-a"):
            bare: Json = {"port": {"allowed_address_pairs": []}}
            self.call("neutron", "PUT", f"/ports/{one['id']}", bare)

    def clear(self) -> None:
        """Take away what a test left."""
        for one in self.balancers():
            if one["provider"] == "noop_driver":
                self.play(one["id"], "DELETED")
        self.settle()
        for one in self.balancers():
            self.delete("octavia", f"/lbaas/loadbalancers/{one['id']}?cascade=true")
        for one in self.floating_ips():
            self.delete("neutron", f"/floatingips/{one['id']}")
        groups = {one["id"] for one in self.groups()}
        for one in self.get("neutron", "/ports?device_owner=compute:zone-a") if groups else ():
            rest = {"security_groups": [g for g in one["security_groups"] if g not in groups]}
            self.call("neutron", "PUT", f"/ports/{one['id']}", {"port": rest})
        for group in groups:
            self.delete("neutron", f"/security-groups/{group}")


def _node_of(server: Json) -> Node:
    (listed,) = server["addresses"].values()
    addresses = [{"type": "InternalIP", "address": one["addr"]} for one in listed]
    return Node(
        {
            "metadata": {"name": server["name"], "uid": server["id"], "labels": {}},
            "spec": {"providerID": f"openstack:///{server['id']}"},
            "status": {"addresses": addresses},
        }
    )


class Worker(Started):
    """The provider of one cluster, started with a configuration, and what it called."""

    def __init__(self, config: str, uid: str = "", restricts_annotations: bool = False) -> None:
        super().__init__(config, "", "kubernetes", uid, CALLER, restricts_annotations)

    @property
    def balancers(self) -> OctaviaLoadBalancers:
        assert isinstance(self.load_balancers, OctaviaLoadBalancers)
        return self.load_balancers

    async def ensure(self, asked: Service, nodes: Sequence[Node]) -> Balancer:
        return await come_back(self.balancers.ensure, asked, nodes)

    async def update(self, asked: Service, nodes: Sequence[Node]) -> None:
        await come_back(self.balancers.update_nodes, asked, nodes)

    async def delete(self, asked: Service) -> None:
        await come_back(self.balancers.delete, asked)

    @property
    def writes(self) -> list[str]:
        return [one for one in self.operations if not one.startswith(("Get", "List"))]

    @property
    def without_polls(self) -> list[str]:
        """The calls but those that wait for Octavia: how many depends on the machine."""
        return [one for one in self.operations if not one.startswith("GetLoadBalancer")]

    def forget_calls(self) -> None:
        self.gate.calls.clear()


async def come_back(work: Callable[..., Awaitable[T]], *args: Any) -> T:
    """What the queue does: again after exactly as long as was asked for."""
    for _ in range(ATTEMPTS):
        try:
            return await work(*args)
        except RetryAfter as error:
            await asyncio.sleep(error.seconds)
    raise AssertionError("it never ends")


def service_of(
    name: str = "web",
    annotations: Mapping[str, str] | None = None,
    ingress: str = "",
    uid: str = "",
    **spec: Any,
) -> Service:
    """A Service as an API server has it; annotations are without upstream's prefix."""
    meta = {
        "name": name,
        "namespace": "default",
        "uid": uid or str(uuid.uuid5(uuid.NAMESPACE_DNS, name)),
        "annotations": {
            key if "/" in key else PREFIX + key: value for key, value in (annotations or {}).items()
        },
    }
    usual = {"type": "LoadBalancer", "ports": [port(80)], "ipFamilies": ["IPv4"]}
    status = {"loadBalancer": {"ingress": [{"ip": ingress}] if ingress else []}}
    return Service({"metadata": meta, "spec": {**usual, **spec}, "status": status})
