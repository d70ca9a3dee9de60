"""The whole product on a real API server and the server: what a cluster costs, and which Nodes go.

There are 50 Nodes; `CCM_LONG=1` makes them a thousand.
"""

import math
import time
from pathlib import Path

import pytest

from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import Json
from ccm.providers.digitalocean.api import PAGE
from ccm.sandbox.kubelets import registration
from tests.e2e.conftest import api, cluster
from tests.labs.digitalocean.server import OTHER_TOKEN, TOKEN, VPC, DigitalOcean
from tests.providers.real_nodes import RealNodes
from tests.support.environment import NODES, SERVICES
from tests.support.kube.cluster import RealCluster
from tests.support.running import IS_LONG, Supervisor, Where, until

__all__ = ["api", "cluster"]

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

COUNT = 1000 if IS_LONG else 50
PERIOD = 0.5  # seconds
FLAGS = (
    "--cloud-provider=digitalocean",
    "--controllers=*,-route",
    f"--node-monitor-period={PERIOD}s",
    "--node-deletion-confirmation-period=0",
    "--cloud-rate=api=100",
)
LIST = "/v2/droplets"
EVERYBODY: Json = {"addresses": ["0.0.0.0/0", "::/0"]}
PORTS = [{"name": "http", "port": 80}]


class Whole(RealNodes):
    """A cluster, the account, and the token's file."""

    def __init__(self, api: Kube, do: DigitalOcean, token: Path) -> None:
        super().__init__(api)
        self.do, self.token = do, token

    async def register(self, number: int) -> None:
        """A droplet, and what the kubelet on it does first."""
        self.do.add_droplet(name_of(number))
        await self.api.post(NODES, registration(name_of(number)))

    async def service(self, name: str) -> Json:
        return dict(await self.api.get(f"{SERVICES}/{name}"))

    async def address(self) -> str:
        ingress = (await self.service("web"))["status"]["loadBalancer"].get("ingress")
        return str(ingress[0]["ip"]) if ingress else ""

    async def lists(self, number: int) -> None:
        """So many reads of droplets from now."""
        before = len(self.do.reads(LIST))
        await until("lists", lambda: len(self.do.reads(LIST)) >= before + number)


def name_of(number: int) -> str:
    return f"do-node-{number}"


async def test_a_cluster_costs_little_and_loses_nothing(
    api: Kube, cluster: RealCluster, do: DigitalOcean, tmp_path: Path
) -> None:
    """DO5, DO6, DO13, DO19, DO20, DO43."""
    token, config = tmp_path / "token", tmp_path / "do.conf"
    token.write_text(TOKEN)
    config.write_text(
        f"[Global]\ntoken-file = {token}\napi-url = {do.url}\ncluster-id = one\n"
        f"vpc-id = {VPC}\n[Firewall]\nname = k8s-access\ntag = worker\nport = 80\n"
    )
    whole = Whole(api, do, token)
    for number in range(COUNT):
        await whole.register(number)
    for name, kind in (("web", "LoadBalancer"), ("open", "NodePort")):
        spec = {"type": kind, "ports": PORTS}
        await api.post(SERVICES, {"metadata": {"name": name}, "spec": spec})
    where = Where(tmp_path, cluster.kubeconfig("ccm"), config)
    with Supervisor(where, *FLAGS) as supervisor:
        await check_start(whole)
        await check_token(whole, supervisor)
        assert supervisor.end() == 0
    await check_restart(whole, where)


async def check_start(whole: Whole) -> None:
    """Pages for all Nodes; one load balancer, made once; the firewall."""
    do, began = whole.do, time.monotonic()
    await until("all nodes are initialized", whole.are_initialized)
    seconds, lists = time.monotonic() - began, len(do.reads(LIST))
    print(f"{COUNT} nodes: {seconds:.2f} s, {lists} lists of droplets")
    pages = math.ceil(COUNT / PAGE)
    assert lists <= pages * (2 + seconds / PERIOD), "a pass a period at the most"
    node = (await whole.nodes())[name_of(0)]
    assert node.labels["topology.kubernetes.io/region"] == "nyc3"
    assert "topology.kubernetes.io/zone" not in node.labels
    await until("the Service has its address", whole.address)
    await until_behind(do, COUNT)
    (balancer,) = do.balancers.values()
    assert balancer["ip"] == await whole.address()
    assert len(do.bodies("POST", "load_balancers")) == 1
    node_port = (await whole.service("open"))["spec"]["ports"][0]["nodePort"]
    wanted = {str(node_port): EVERYBODY, "80": EVERYBODY}
    wanted["10256"] = {"load_balancer_uids": [balancer["id"]]}
    await until("the firewall is as it is to be", lambda: opened(do) == wanted)


def opened(do: DigitalOcean) -> dict[str, Json]:
    rules = [rule for one in do.firewalls.values() for rule in one["inbound_rules"]]
    return {rule["ports"]: rule["sources"] for rule in rules}


async def until_behind(do: DigitalOcean, count: int) -> None:
    def are_behind() -> bool:
        return all(len(one["droplet_ids"]) == count for one in do.balancers.values())

    await until("all nodes are behind it", are_behind)


async def check_token(whole: Whole, supervisor: Supervisor) -> None:
    """Five Nodes fell silent: to another team's token they are 404, and nobody goes."""
    await whole.stop_kubelets(*map(name_of, range(5)))
    whole.token.write_text(OTHER_TOKEN)
    await whole.lists(6)
    await whole.until_reported(supervisor, name_of(0), "another team")
    assert len(await whole.nodes()) == COUNT
    whole.token.write_text(TOKEN)
    whole.do.droplets = {k: v for k, v in whole.do.droplets.items() if v["name"] != name_of(0)}
    await whole.until_gone(name_of(0))
    assert len(await whole.nodes()) == COUNT - 1
    await until_behind(whole.do, COUNT - 1)


async def check_restart(whole: Whole, where: Where) -> None:
    """A new process finds all as it is to be; a change is one write, and a deletion leaves none."""
    do, api = whole.do, whole.api
    writes, looks = len(do.writes()), len(do.reads("/v2/load_balancers"))
    with Supervisor(where, *FLAGS, name="again") as again:
        await until("it has looked", lambda: len(do.reads("/v2/load_balancers")) > looks)
        await until("the firewall was looked at", lambda: again.is_idle(COUNT))
        assert do.writes()[writes:] == []
        body = {"spec": {"loadBalancerSourceRanges": ["192.0.2.0/24"]}}
        await api.patch(f"{SERVICES}/web", MERGE_PATCH, body)
        await until("it is changed", lambda: len(do.writes()) > writes)
        await api.request("DELETE", f"{SERVICES}/web")
        await until("it is deleted", lambda: not do.balancers)
        balancers = [one for one in do.writes()[writes:] if "load_balancers" in one]
        assert [one.partition(" ")[0] for one in balancers] == ["PUT", "DELETE"]
        assert again.end() == 0
