"""Routes in the cluster's tables, against the emulator."""

from typing import Any

import pytest

from ccm.cloud.gate import invoke
from ccm.errors import CloudError, Refused
from ccm.model.cloud import Route
from ccm.model.objects import Node
from ccm.providers.aws.provider import AwsCloud
from tests.providers.aws.proxy import Proxy, Refusal, Request
from tests.providers.aws.world import Account, Start, node_of, tags

CIDR = "10.244.0.0/24"


async def listed(cloud: AwsCloud, *nodes: Node) -> list[Route]:
    assert cloud.routes
    return list(await invoke(cloud.routes.list, nodes))


async def create(cloud: AwsCloud, node: Node, cidr: str = CIDR) -> None:
    assert cloud.routes
    await invoke(cloud.routes.create, node, cidr)


def routes_of(account: Account, table: str = "") -> dict[str, Any]:
    """Pod networks in a table, with the instances that they lead to."""
    answer = account.ec2.describe_route_tables(RouteTableIds=[table or account.table])
    routes = answer["RouteTables"][0]["Routes"]
    return {
        route["DestinationCidrBlock"]: route.get("InstanceId") or route.get("NetworkInterfaceId")
        for route in routes
        if route["DestinationCidrBlock"].startswith("10.244.")
    }


async def test_a_route_is_made_and_its_machine_may_forward(
    cloud: AwsCloud, account: Account
) -> None:
    (made,) = account.launch()
    node = node_of(made, [CIDR])
    await create(cloud, node)
    assert routes_of(account) == {CIDR: made["InstanceId"]}
    assert account.instance(made["InstanceId"])["SourceDestCheck"] is False
    assert await listed(cloud, node) == [Route(CIDR, node.name, f"{account.table}@{CIDR}")]


async def test_a_machine_with_several_interfaces_is_reached_by_its_first(
    cloud: AwsCloud, account: Account
) -> None:
    (made,) = account.launch()
    second = account.ec2.create_network_interface(SubnetId=next(iter(account.private.values())))
    account.ec2.attach_network_interface(
        NetworkInterfaceId=second["NetworkInterface"]["NetworkInterfaceId"],
        InstanceId=made["InstanceId"],
        DeviceIndex=1,
    )
    await create(cloud, node_of(made, [CIDR]))
    first = made["NetworkInterfaces"][0]["NetworkInterfaceId"]
    assert routes_of(account) == {CIDR: first}


async def test_every_table_of_the_cluster_gets_the_route(cloud: AwsCloud, account: Account) -> None:
    other = account.ec2.create_route_table(VpcId=account.vpc)["RouteTable"]["RouteTableId"]
    (made,) = account.launch()
    node = node_of(made, [CIDR])
    await create(cloud, node)
    account.ec2.create_tags(Resources=[other], Tags=tags())
    assert await listed(cloud, node) == []  # not everywhere yet, so it is to be made
    await create(cloud, node)
    assert routes_of(account) == routes_of(account, other) == {CIDR: made["InstanceId"]}
    (route,) = await listed(cloud, node)
    assert cloud.routes
    await invoke(cloud.routes.delete, route)
    assert routes_of(account) == routes_of(account, other) == {}


async def test_the_configured_table_is_the_only_one(start: Start, account: Account) -> None:
    other = account.ec2.create_route_table(VpcId=account.vpc)["RouteTable"]["RouteTableId"]
    cloud = await start(f"RouteTableID = {other}\n")
    (made,) = account.launch()
    await create(cloud, node_of(made, [CIDR]))
    assert (routes_of(account), routes_of(account, other)) == ({}, {CIDR: made["InstanceId"]})


async def test_without_a_table_it_is_told_what_to_do(start: Start, account: Account) -> None:
    account.ec2.delete_tags(Resources=[account.table], Tags=[{"Key": tags()[0]["Key"]}])
    cloud = await start()
    with pytest.raises(Refused, match="tag one or set RouteTableID"):
        await listed(cloud)


async def test_a_network_that_leads_elsewhere_is_refused(cloud: AwsCloud, account: Account) -> None:
    first, second = account.launch(2)
    await create(cloud, node_of(first, [CIDR]))
    await create(cloud, node_of(first, [CIDR]))
    with pytest.raises(Refused, match=f"already, to {first['InstanceId']}"):
        await create(cloud, node_of(second, [CIDR]))


async def test_a_full_table_is_explained_injected(
    cloud: AwsCloud, account: Account, proxy: Proxy
) -> None:
    (made,) = account.launch()
    full = Refusal(400, "RouteLimitExceeded", "The maximum number of routes has been reached.")
    with proxy.fault("CreateRoute", full), pytest.raises(Refused) as refused:
        await create(cloud, node_of(made, [CIDR]))
    assert f"{account.table} is full with 1 routes: raise the quota" in str(refused.value)


async def test_a_blackhole_is_listed_and_turned_injected(
    cloud: AwsCloud, account: Account, proxy: Proxy
) -> None:
    old, new = account.launch(2)
    await create(cloud, node_of(old, [CIDR]))

    def blackhole(request: Request, answer: bytes) -> bytes:
        is_table = request.operation == "DescribeRouteTables"
        leads_on = new["InstanceId"].encode() in answer
        return answer if leads_on or not is_table else answer.replace(b">active<", b">blackhole<")

    proxy.rewrite = blackhole
    (route,) = [one for one in await listed(cloud, node_of(old, [CIDR])) if one.cidr == CIDR]
    assert route.is_blackhole
    await create(cloud, node_of(new, [CIDR]))
    assert routes_of(account) == {CIDR: new["InstanceId"]}


async def test_many_new_machines_are_read_at_once(
    cloud: AwsCloud, account: Account, proxy: Proxy
) -> None:
    machines = account.launch_many(20)
    nodes = [node_of(m, [f"10.244.{n}.0/24"]) for n, m in enumerate(machines)]
    await listed(cloud, *nodes)
    for node in nodes:
        await create(cloud, node, node.pod_cidrs[0])
    assert proxy.counted()["ec2:DescribeInstances"] == 1
    assert proxy.counted()["ec2:DescribeRouteTables"] == 1
    assert len(routes_of(account)) == 20


async def test_a_node_without_a_machine_is_refused(cloud: AwsCloud) -> None:
    with pytest.raises(CloudError):
        await create(cloud, Node({"metadata": {"name": "n"}, "spec": {}}))


async def test_a_machine_stays_as_it_is_when_there_is_no_table(
    start: Start, account: Account, proxy: Proxy
) -> None:
    account.ec2.delete_tags(Resources=[account.table], Tags=[{"Key": tags()[0]["Key"]}])
    cloud = await start()
    (made,) = account.launch()
    with pytest.raises(Refused, match="tag one"):
        await create(cloud, node_of(made, [CIDR]))
    assert proxy.writes() == []


async def test_a_table_that_went_away_is_looked_for_again(
    cloud: AwsCloud, account: Account
) -> None:
    old, new = (account.ec2.create_route_table(VpcId=account.vpc) for _ in range(2))
    old_id, new_id = old["RouteTable"]["RouteTableId"], new["RouteTable"]["RouteTableId"]
    account.ec2.create_tags(Resources=[old_id], Tags=tags())
    account.ec2.delete_tags(Resources=[account.table], Tags=[{"Key": tags()[0]["Key"]}])
    (made,) = account.launch()
    node = node_of(made, [CIDR])
    assert await listed(cloud, node) == []
    account.ec2.delete_route_table(RouteTableId=old_id)
    account.ec2.create_tags(Resources=[new_id], Tags=tags())
    with pytest.raises(CloudError) as failed:
        await create(cloud, node)
    assert not isinstance(failed.value, Refused)
    await create(cloud, node)
    assert routes_of(account, new_id) == {CIDR: made["InstanceId"]}


@pytest.mark.parametrize("operation", ["CreateRoute", "ModifyInstanceAttribute"])
async def test_a_machine_that_is_not_visible_everywhere_yet_is_tried_again_injected(
    cloud: AwsCloud, account: Account, proxy: Proxy, operation: str
) -> None:
    (made,) = account.launch()
    node = node_of(made, [CIDR])
    unseen = Refusal(400, "InvalidInstanceID.NotFound", f"'{made['InstanceId']}' does not exist")
    with proxy.fault(operation, unseen), pytest.raises(CloudError) as failed:
        await create(cloud, node)
    assert not isinstance(failed.value, Refused)
    await create(cloud, node)
    assert routes_of(account) == {CIDR: made["InstanceId"]}
