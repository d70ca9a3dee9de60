"""The whole product on a real API server and the emulator: nodes, balancers, routes, volumes."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import Json
from ccm.providers.aws.tags import read_tags
from ccm.sandbox.kubelets import ready_condition, registration
from tests.e2e.chaos import users
from tests.providers.aws.adapter import machine_of
from tests.providers.aws.proxy import Limit, Proxy
from tests.providers.aws.world import ZONES, Account, config_text
from tests.support.cluster_nodes import kill
from tests.support.environment import SERVICES, VOLUMES, persistent_volume
from tests.support.kube.cluster import RealCluster
from tests.support.running import Supervisor, Where, long, until

pytestmark = pytest.mark.real

FLAGS = (
    "--cloud-provider=aws",
    "--controllers=*",
    "--cluster-cidr=10.244.0.0/16",
    "--node-monitor-period=500ms",
    "--node-deletion-confirmation-period=0",
)
TYPE = "service.beta.kubernetes.io/aws-load-balancer-type"
ZONE_IDS = {ZONES[0]: "use1-az6", ZONES[1]: "use1-az1"}


@pytest.fixture
def where(tmp_path: Path, cluster: RealCluster, account: Account, proxy: Proxy) -> Where:
    config = tmp_path / "aws.conf"
    config.write_text(config_text(account, proxy.url))
    return Where(tmp_path, cluster.kubeconfig("ccm"), config)


async def get_nodes(api: Kube) -> dict[str, Json]:
    return {item["metadata"]["name"]: item for item in (await api.get("/api/v1/nodes"))["items"]}


async def initialized(api: Kube, count: int) -> dict[str, Json]:
    """All Nodes by name, once `count` of them are initialized."""

    async def look() -> dict[str, Json]:
        nodes = await get_nodes(api)
        done = [n for n in nodes.values() if n["spec"].get("providerID") and not _tainted(n)]
        return nodes if len(done) >= count else {}

    found: dict[str, Json] = await until(f"{count} nodes are initialized", look, 120)
    return found


def _tainted(node: Json) -> bool:
    return any("uninitialized" in taint["key"] for taint in node["spec"].get("taints", ()))


def service(name: str, port: int, **annotations: str) -> Json:
    body = users.service(name, [(port, "TCP")])
    return {**body, "metadata": {"name": name, "annotations": annotations}}


def shapes(account: Account) -> dict[str, Json]:
    """Instances of several shapes, by the names that their Nodes have."""
    (public,) = account.launch()
    (private,) = account.launch(zone=ZONES[1], SubnetId=account.private[ZONES[1]])
    (several,) = account.launch(InstanceType="c5.xlarge")
    account.add_interface(several, account.private[ZONES[0]])
    (by_id,) = account.launch()
    instances = (public, private, account.instance(several["InstanceId"]))
    found = {instance["PrivateDnsName"]: instance for instance in instances}
    return found | {by_id["InstanceId"]: by_id}


def expected(name: str, instance: Json) -> Json:
    """What upstream's controller makes of the Node of an instance."""
    machine = machine_of(instance)
    return {
        "labels": registration(name)["metadata"]["labels"]
        | {
            "node.kubernetes.io/instance-type": machine.type,
            "beta.kubernetes.io/instance-type": machine.type,
            "topology.kubernetes.io/zone": machine.zone,
            "failure-domain.beta.kubernetes.io/zone": machine.zone,
            "topology.kubernetes.io/region": "us-east-1",
            "failure-domain.beta.kubernetes.io/region": "us-east-1",
            "topology.k8s.aws/zone-id": ZONE_IDS[machine.zone],
        },
        "providerID": machine.provider_id,
        "addresses": [{"type": str(a.type), "address": a.address} for a in machine.addresses],
    }


def summary(node: Json) -> Json:
    return {
        "labels": node["metadata"]["labels"],
        "providerID": node["spec"]["providerID"],
        "addresses": node["status"]["addresses"],
    }


async def test_a_cluster_is_served_and_leaves_nothing_behind(
    where: Where, api: Kube, account: Account, proxy: Proxy
) -> None:
    instances = shapes(account)
    volume_id = account.ec2.create_volume(AvailabilityZone=ZONES[2], Size=1)["VolumeId"]
    await api.post(SERVICES, service("nlb", 443, **{TYPE: "nlb"}))
    await api.post(SERVICES, service("classic", 80))
    volume = persistent_volume("data", volume_id, driver="ebs.csi.aws.com")
    await api.post(VOLUMES, volume)
    for number, name in enumerate(instances):
        await api.post("/api/v1/nodes", registration(name, f"10.244.{number}.0/24"))
    with Supervisor(where, *FLAGS) as supervisor:
        nodes = await initialized(api, len(instances))
        for name, instance in instances.items():
            assert summary(nodes[name]) == expected(name, instance)
        await check_balancers(api, account, instances)
        await check_routes(api, account, instances)
        await check_volume(api)
        await check_a_terminated_machine(api, account, instances)
        await delete_everything(api, account)
        assert supervisor.end() == 0


async def check_balancers(api: Kube, account: Account, instances: dict[str, Json]) -> None:
    """Both kinds: their names are in the status, and all nodes are behind them."""
    ids = {instance["InstanceId"] for instance in instances.values()}
    nlb, elb = await ready_service(api, "nlb"), await ready_service(api, "classic")

    async def have_all() -> bool:
        (group,), (classic,) = account.target_groups(), account.classic_elbs()
        registered = {instance["InstanceId"] for instance in classic["Instances"]}
        return set(account.targets(group)) == registered == ids

    await until("all nodes are behind both balancers", have_all)
    (network,), (classic,) = account.nlbs(), account.classic_elbs()
    assert (network["Type"], network["Scheme"]) == ("network", "internet-facing")
    for one, made in ((nlb, network), (elb, classic)):
        assert one["status"]["loadBalancer"]["ingress"] == [{"hostname": made["DNSName"]}]


async def ready_service(api: Kube, name: str) -> Json:
    async def look() -> Json:
        found: Json = await api.get(f"{SERVICES}/{name}")
        return found if found["status"]["loadBalancer"].get("ingress") else {}

    found: Json = await until(f"{name} has a host name", look)
    return found


async def check_routes(api: Kube, account: Account, instances: dict[str, Json]) -> None:
    names = list(instances)
    await until("all nodes have routes", lambda: routed(account, names))
    for node in (await get_nodes(api)).values():
        instance = account.instance(node["spec"]["providerID"].rpartition("/")[2])
        interface = instance["NetworkInterfaces"][0]
        assert not interface["SourceDestCheck"] or not instance["SourceDestCheck"]


async def routed(account: Account, names: Sequence[str]) -> bool:
    """Whether the cluster's table has a route for each of so many nodes, and no other."""
    (table,) = account.ec2.describe_route_tables(RouteTableIds=[account.table])["RouteTables"]
    cidrs = {route["DestinationCidrBlock"] for route in table["Routes"]}
    pods = {cidr for cidr in cidrs if cidr.startswith("10.244.")}
    return len(pods) == len(names)


async def check_volume(api: Kube) -> None:
    async def look() -> bool:
        volume = await api.get("/api/v1/persistentvolumes/data")
        labels = volume["metadata"].get("labels", {})
        return bool(labels.get("topology.kubernetes.io/zone") == ZONES[2])

    await until("the volume has its zone", look)


async def check_a_terminated_machine(
    api: Kube, account: Account, instances: dict[str, Json]
) -> None:
    gone = next(iter(instances))
    account.ec2.terminate_instances(InstanceIds=[instances[gone]["InstanceId"]])
    body = {"status": {"conditions": [ready_condition(False)]}}
    await api.patch(f"/api/v1/nodes/{gone}/status", MERGE_PATCH, body)

    async def is_gone() -> bool:
        return set(await get_nodes(api)) == set(instances) - {gone}

    await until("the node of the terminated machine is gone", is_gone)
    await until("its route is gone", lambda: routed(account, list(instances)[1:]))


async def delete_everything(api: Kube, account: Account) -> None:
    await api.request("DELETE", f"{SERVICES}/nlb")
    await api.request("DELETE", f"{SERVICES}/classic")

    async def is_clean() -> bool:
        services = (await api.get(SERVICES))["items"]
        nlbs = account.elbv2.describe_load_balancers()["LoadBalancers"]  # no details: they go
        left = [*account.classic_elbs(), *nlbs, *account.target_groups()]
        return len(services) <= 1 and not left

    await until("no balancer is left", is_clean)
    groups = account.security_groups()
    assert {group["GroupName"] for group in groups} == {"default", "nodes"}
    rules = [rule for group in groups for rule in group["IpPermissions"]]
    assert [rule for rule in rules if "kubernetes.io" in str(rule)] == []


async def test_instances_have_tags_while_they_have_nodes_also_beyond_a_crash(
    where: Where, api: Kube, account: Account
) -> None:
    machines = account.launch(3)
    tagging = ("--controllers=cloud-node,tagging", "--tags=team=web,tier=", "--resources=instance")

    async def are_tagged(*expected: bool) -> bool:
        ids = [machine["InstanceId"] for machine in machines]
        tags = [read_tags(account.instance(one)["Tags"]) for one in ids]
        return [one.get("team") == "web" and one.get("tier") == "" for one in tags] == [*expected]

    for machine in machines[:2]:
        await api.post("/api/v1/nodes", registration(machine["PrivateDnsName"]))
    with Supervisor(where, *FLAGS, *tagging) as supervisor:
        await until("two are tagged", lambda: are_tagged(True, True, False))
        before = supervisor.pids()
        kill(before["tagging"])
        await api.post("/api/v1/nodes", registration(machines[2]["PrivateDnsName"]))
        await until("it runs again", lambda: supervisor.is_replaced("tagging", before["tagging"]))
        await until("the third is tagged", lambda: are_tagged(True, True, True))
        await api.request("DELETE", f"/api/v1/nodes/{machines[0]['PrivateDnsName']}")
        await until("the first is not", lambda: are_tagged(False, True, True))
        assert supervisor.pids()["node-0"] == before["node-0"]
        assert supervisor.end() == 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("nodes", "services"), [(20, 1), pytest.param(40, 2, marks=long)])
async def test_a_slow_account_still_gets_all_its_nodes_without_a_storm_injected(
    where: Where, api: Kube, account: Account, proxy: Proxy, nodes: int, services: int
) -> None:
    """Five calls a second for everything: nodes and balancers converge, refusals stay few."""
    limit = proxy.rule = Limit(per_second=5.0, burst=5.0)
    machines = account.launch(nodes)
    for machine in machines:
        await api.post("/api/v1/nodes", registration(machine["PrivateDnsName"]))
    for number in range(services):
        await api.post(SERVICES, service(f"web-{number}", 80, **{TYPE: "nlb"}))
    flags = [flag for flag in FLAGS if not flag.startswith("--cluster-cidr")]
    with Supervisor(where, *flags) as supervisor:
        await initialized(api, len(machines))
        for number in range(services):
            await ready_service(api, f"web-{number}")
        assert supervisor.end() == 0
    calls = len(proxy.requests)
    seconds = proxy.requests[-1].at - proxy.requests[0].at
    print(f"{calls} calls, {limit.throttled} throttled, {seconds:.0f} s")
    assert limit.throttled < calls / 3
