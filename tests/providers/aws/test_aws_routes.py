"""Routes in the cluster's tables, against the emulator."""

from contextlib import suppress
from typing import Any

import pytest

from ccm.errors import CloudError, Refused
from ccm.model.cloud import Route
from tests.providers.aws.proxy import Refusal, Request
from tests.providers.aws.world import ZONES, Account, Aws, node_of

CIDR = "10.244.0.0/24"


def routes_of(account: Account, table: str = "") -> dict[str, Any]:
    """Pod networks in a table, with the instances that they lead to."""
    answer = account.ec2.describe_route_tables(RouteTableIds=[table or account.table])
    routes = answer["RouteTables"][0]["Routes"]
    return {
        route["DestinationCidrBlock"]: route.get("InstanceId") or route.get("NetworkInterfaceId")
        for route in routes
        if route["DestinationCidrBlock"].startswith("10.244.")
    }


async def test_a_route_is_made_and_its_machine_may_forward(aws: Aws) -> None:
    (made,) = aws.launch()
    node = node_of(made, [CIDR])
    await aws.create_route(node)
    assert routes_of(aws) == {CIDR: made["InstanceId"]}
    assert aws.instance(made["InstanceId"])["SourceDestCheck"] is False
    assert await aws.list_routes(node) == [Route(CIDR, node.name, f"{aws.table}@{CIDR}")]


async def test_a_machine_with_several_interfaces_is_reached_by_its_first(aws: Aws) -> None:
    (made,) = aws.launch()
    aws.add_interface(made, aws.private[ZONES[0]])
    await aws.create_route(node_of(made, [CIDR]))
    first = made["NetworkInterfaces"][0]["NetworkInterfaceId"]
    assert routes_of(aws) == {CIDR: first}


async def test_every_table_of_the_cluster_gets_the_route(aws: Aws) -> None:
    other = aws.make_table()
    (made,) = aws.launch()
    node = node_of(made, [CIDR])
    await aws.create_route(node)
    aws.tag(other)
    assert await aws.list_routes(node) == []  # not everywhere yet, so it is to be made
    await aws.create_route(node)
    assert routes_of(aws) == routes_of(aws, other) == {CIDR: made["InstanceId"]}
    (route,) = await aws.list_routes(node)
    await aws.delete_route(route)
    assert routes_of(aws) == routes_of(aws, other) == {}


async def test_the_configured_table_is_the_only_one(aws: Aws) -> None:
    other = aws.make_table()
    await aws.start(f"RouteTableID = {other}\n")
    (made,) = aws.launch()
    await aws.create_route(node_of(made, [CIDR]))
    assert (routes_of(aws), routes_of(aws, other)) == ({}, {CIDR: made["InstanceId"]})


async def test_without_a_table_the_remedy_is_reported_and_nothing_is_written(
    aws: Aws,
) -> None:
    aws.untag(aws.table)
    await aws.start()
    for attempt in (aws.list_routes(), aws.create_route(node_of(aws.launch()[0]), CIDR)):
        with pytest.raises(Refused, match="tag one or set RouteTableID"):
            await attempt
    assert aws.proxy.writes() == []


async def test_no_route_is_made_to_an_instance_without_the_clusters_tag(aws: Aws) -> None:
    ours, *theirs = aws.launch(3)
    aws.untag(*(each["InstanceId"] for each in theirs))
    nodes = [node_of(each, [f"10.244.{n}.0/24"]) for n, each in enumerate(theirs)]
    await aws.list_routes(node_of(ours), *nodes)
    for one in nodes:
        with pytest.raises(Refused, match="lacks the tag"):
            await aws.create_route(one, *one.pod_cidrs)
    assert await aws.list_routes(*nodes) == []
    assert all(aws.instance(each["InstanceId"])["SourceDestCheck"] for each in theirs)


async def test_a_full_table_is_explained_injected(aws: Aws) -> None:
    (made,) = aws.launch()
    full = Refusal(400, "RouteLimitExceeded", "The maximum number of routes has been reached.")
    with aws.proxy.fault("CreateRoute", full), pytest.raises(Refused) as refused:
        await aws.create_route(node_of(made, [CIDR]))
    assert f"{aws.table} is full with 1 routes: raise the quota" in str(refused.value)


@pytest.mark.parametrize("is_denied", [False, True])
async def test_a_blackhole_is_listed_and_turned_injected(aws: Aws, is_denied: bool) -> None:
    """Where upstream's credentials may not turn it, it is deleted and recreated."""
    old, new = aws.launch(2)
    await aws.create_route(node_of(old, [CIDR]))

    def blackhole(request: Request, answer: bytes) -> bytes:
        is_table = request.operation == "DescribeRouteTables"
        leads_on = new["InstanceId"].encode() in answer
        return answer if leads_on or not is_table else answer.replace(b">active<", b">blackhole<")

    aws.proxy.rewrite = blackhole
    (route,) = [one for one in await aws.list_routes(node_of(old, [CIDR])) if one.cidr == CIDR]
    assert route.is_blackhole
    if is_denied:
        denied = Refusal(403, "UnauthorizedOperation")
        aws.proxy.rule = lambda request: denied if request.operation == "ReplaceRoute" else None
    await aws.create_route(node_of(new, [CIDR]))
    assert routes_of(aws) == {CIDR: new["InstanceId"]}


async def test_many_new_machines_are_read_at_once(aws: Aws) -> None:
    machines = aws.launch(20)
    nodes = [node_of(m, [f"10.244.{n}.0/24"]) for n, m in enumerate(machines)]
    await aws.list_routes(*nodes)
    for node in nodes:
        await aws.create_route(node)
    assert aws.proxy.counted()["ec2:DescribeInstances"] == 1
    assert aws.proxy.counted()["ec2:DescribeRouteTables"] == 2  # new ones are read by ID, once
    assert len(routes_of(aws)) == 20


async def test_a_table_that_went_away_is_looked_for_again(aws: Aws) -> None:
    old, new = aws.make_table(), aws.make_table()
    aws.tag(old)
    aws.untag(aws.table)
    (made,) = aws.launch()
    node = node_of(made, [CIDR])
    assert await aws.list_routes(node) == []
    aws.ec2.delete_route_table(RouteTableId=old)
    aws.tag(new)
    with pytest.raises(CloudError) as failed:
        await aws.create_route(node)
    assert not isinstance(failed.value, Refused)
    await aws.create_route(node)
    assert routes_of(aws, new) == {CIDR: made["InstanceId"]}


@pytest.mark.parametrize("operation", ["CreateRoute", "ModifyInstanceAttribute"])
async def test_a_machine_that_is_not_visible_everywhere_yet_is_tried_again_injected(
    aws: Aws, operation: str
) -> None:
    (made,) = aws.launch()
    node = node_of(made, [CIDR])
    unseen = Refusal(400, "InvalidInstanceID.NotFound", f"'{made['InstanceId']}' does not exist")
    with aws.proxy.fault(operation, unseen), pytest.raises(CloudError) as failed:
        await aws.create_route(node)
    assert not isinstance(failed.value, Refused)
    await aws.create_route(node)
    assert routes_of(aws) == {CIDR: made["InstanceId"]}


@pytest.mark.parametrize("which", [1, 2])
async def test_a_table_that_one_answer_mixes_up_has_no_route_of_another_changed_injected(
    aws: Aws, which: int
) -> None:
    """Another cluster's route for the same pod network, in another VPC, went with our Node's."""
    theirs, count = aws.make_table(), 0
    (made,) = aws.launch()
    node = node_of(made, [CIDR])
    target = {"DestinationCidrBlock": CIDR, "InstanceId": made["InstanceId"]}
    await aws.create_route(node)
    aws.ec2.create_route(RouteTableId=theirs, **target)
    await aws.start()

    def mix_up(request: Request, answer: bytes) -> bytes:
        nonlocal count
        count += request.operation == "DescribeRouteTables"
        is_it = request.operation == "DescribeRouteTables" and count == which
        return answer.replace(aws.table.encode(), theirs.encode()) if is_it else answer

    aws.proxy.rewrite = mix_up
    for _ in range(3):
        with suppress(CloudError):
            for route in await aws.list_routes(node):
                await aws.delete_route(route)
            await aws.create_route(node_of(made, ["10.244.9.0/24"]))
    assert routes_of(aws, theirs) == {CIDR: made["InstanceId"]}
    assert routes_of(aws) == {"10.244.9.0/24": made["InstanceId"]}
