"""Machines of many resource groups, some of which cannot be read: rows AZ74 to AZ76."""

import re
import time
from collections.abc import Mapping

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.interface import NOT_LOOKED, look_up_of
from ccm.cloud.machines import NOT_FOUND
from ccm.cloud.testkit.harness import node as node_named
from ccm.cloud.testkit.harness import port
from ccm.errors import CloudError
from ccm.model.cloud import Answer, Instance, Unknown
from ccm.model.objects import Json, Node
from ccm.providers.azure import ids
from ccm.providers.azure.api import AzureApi
from ccm.providers.azure.instances import LOOK_PAUSE, LOOKS, AzureInstances
from tests.labs.azure.lab import GROUP, OTHER_GROUP, SUBSCRIPTION, Lab, path_of
from tests.providers.azure.conftest import Started, host
from tests.providers.azure.test_azure_balancers import destinations_of, members, rules, web
from tests.providers.azure.test_azure_routes import create, listed

MANY = 12
OF_SUBSCRIPTION = "GET /subscriptions/[^/]+/providers/Microsoft.Network/networkInterfaces"
LIST_ELSEWHERE = re.compile(
    rf"/subscriptions/[^/]+(/resourceGroups/{OTHER_GROUP})?/providers/[^/]+"
    r"/(virtualMachines|networkInterfaces|virtualMachineScaleSets)",
    re.IGNORECASE,
)
BY_ADDRESS = {"loadBalancerBackendPoolConfigurationType": "nodeIP"}


@pytest.fixture
def nodes(lab: Lab) -> list[Node]:
    """One in the cluster's group, and one in each of twelve others."""
    found = [host(lab.add_machine("near"))]
    for number in range(MANY):
        group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/g-{number:02}"
        lab.call("PUT", f"{group}?api-version=2024-11-01", {"location": "westeurope"})
        found.append(host(lab.add_machine(f"far-{number:02}", f"g-{number:02}")))
    lab.forget_calls()
    return found


@pytest.mark.parametrize("kind", ["nodeIPConfiguration", "nodeIP"])
async def test_machines_of_many_groups_are_found_and_joined(
    lab: Lab, nodes: list[Node], kind: str
) -> None:
    """AZ74: by the subscription's lists, in as many calls as for one group."""
    cloud = await Started(lab.config(loadBalancerBackendPoolConfigurationType=kind)).start()
    answers = await cloud.describe(*nodes)
    assert all(isinstance(answer, Instance) for answer in answers.values()), answers
    assert len([one for one in lab.calls() if "/providers/" in one["path"]]) == 3
    await cloud.ensure(web(), *nodes)
    assert members(lab) == {one.name for one in nodes}
    assert cloud.load_balancers
    await invoke(cloud.load_balancers.update_nodes, web(), nodes[:-1])
    assert members(lab) == {one.name for one in nodes[:-1]}


async def test_nodes_that_name_groups_without_end_have_few_of_them_read(
    lab: Lab, cloud: Started
) -> None:
    """Who joins is read with them, and waits for what they name; a proof has any group read."""
    assert cloud.instances
    look_up = look_up_of(cloud.instances)
    near, far = host(lab.add_machine("near")), host(lab.add_machine("far", OTHER_GROUP))
    for number in range(3 * LOOKS):
        bad = node_named("bad", f"azure://{path_of('virtualMachines', 'x', f'a-{number}')}")
        answers: Mapping[str, Answer] = await invoke(look_up, [bad, near])
        assert isinstance(answers["near"], Instance), answers["near"]
        assert isinstance(answers["bad"], Unknown), answers["bad"]
    groups = {one["path"].split("/")[4] for one in lab.calls() if "/resourceG" in one["path"]}
    assert len(groups) <= LOOKS + 1, "the cluster's, and few of others"
    assert await invoke(look_up, [far]) == {"far": NOT_FOUND}
    await cloud.known(far)
    answers = await invoke(look_up, [far])
    assert isinstance(answers["far"], Instance), answers["far"]


async def test_what_is_in_groups_that_are_not_looked_at_is_left_out_until_they_are(
    lab: Lab, cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For routes and load balancers: any machine may be there, also another cluster's."""
    instances = cloud.instances
    assert isinstance(instances, AzureInstances)
    near, far = host(lab.add_machine("near")), host(lab.add_machine("far", OTHER_GROUP))
    for number in range(3 * LOOKS):
        bad = node_named("bad", f"azure://{path_of('virtualMachines', 'x', f'a-{number}')}")
        found: Mapping[str, str] = await invoke(instances.foreign, [bad, near])
        assert found == ({"near": ""} | ({"bad": NOT_LOOKED} if number >= LOOKS else {}))
    groups = {one["path"].split("/")[4] for one in lab.calls() if "/resourceG" in one["path"]}
    assert len(groups) <= LOOKS + 1, "the cluster's, and few of others"
    found = await invoke(instances.foreign, [far])
    assert found == {"far": NOT_LOOKED}
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + LOOK_PAUSE)
    for expected in ({"far": ""}, {"far": "", "bad": NOT_LOOKED}):
        found = await invoke(instances.foreign, [far, bad])
        assert found == expected


async def test_without_the_right_to_the_subscription_no_machine_leaves(
    lab: Lab, nodes: list[Node]
) -> None:
    """AZ75: ten further groups are read; Nodes of the others say what is missing."""
    cloud = await Started(lab.config(**BY_ADDRESS)).start()
    await cloud.ensure(web(), *nodes)
    lab.fail(OF_SUBSCRIPTION, 1_000, status=403, code="AuthorizationFailed", message="no")
    answers = await cloud.describe(*nodes)
    unknown = [name for name, one in answers.items() if not isinstance(one, Instance)]
    assert len(unknown) == 2
    assert "ListInterfaces: 403 AuthorizationFailed" in await _why(cloud, unknown[0], nodes)
    made = await cloud.ensure(web(), *nodes)
    assert members(lab) == {one.name for one in nodes}
    first, second = sorted(unknown)
    assert made.warnings == (f"the machine is not known of nodes {first}, {second}",)
    gone = [one for one in nodes if one.name != unknown[0]]
    assert cloud.load_balancers
    await invoke(cloud.load_balancers.update_nodes, web(), gone)
    assert members(lab) == {one.name for one in gone}


async def test_a_machine_that_is_listed_without_its_addresses_stays_behind_load_balancers(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its interface may be lacking in its list; the pool, and what lets clients in, have it."""
    nodes = [host(lab.add_machine(f"node-{number}")) for number in range(2)]
    cloud = await Started(lab.config(**BY_ADDRESS)).start()
    asked = web(annotations={"disable-load-balancer-floating-ip": "true"})
    await cloud.ensure(asked, *nodes)
    before, read = rules(lab), AzureApi.list

    async def list_less(api: AzureApi, operation: str, path: str, **query: str) -> list[Json]:
        found = await read(api, operation, path, **query)
        return [item for item in found if item["name"] != "node-1-nic"]

    monkeypatch.setattr(AzureApi, "list", list_less)
    made = await cloud.ensure(asked, *nodes)
    assert made.warnings == ("the machine is not known of nodes node-1",)
    assert members(lab) == {"node-0", "node-1"}
    assert rules(lab) == before


async def test_a_pod_that_gets_the_address_of_a_machine_that_is_gone_has_no_clients(
    lab: Lab,
) -> None:
    """With Azure CNI it is another address of the interface of its Node."""
    nodes = [host(lab.add_machine(name)) for name in ("gone", "other")]
    cloud = await Started(lab.config(**BY_ADDRESS)).start()
    await cloud.ensure(web(), *nodes)
    (gone, other) = (lab.get("networkInterfaces", f"{name}-nic") for name in ("gone", "other"))
    lab.delete_machine(ids.machine_of(nodes[0].provider_id))
    lab.delete("networkInterfaces", gone["name"])
    (was,) = gone["properties"]["ipConfigurations"]
    pod = {**was["properties"], "primary": False}
    configurations = [*other["properties"]["ipConfigurations"], {"name": "pod", "properties": pod}]
    lab.merge(other["id"], properties={**other["properties"], "ipConfigurations": configurations})
    await cloud.ensure(web(), *nodes)
    assert members(lab) == {"other"}


@pytest.mark.parametrize("is_node", [True, False])
@pytest.mark.parametrize("annotations", [{}, {"disable-load-balancer-floating-ip": "true"}])
async def test_who_gets_the_address_of_a_machine_that_is_gone_takes_its_place(
    lab: Lab, is_node: bool, annotations: dict[str, str]
) -> None:
    """The former one's kubelet may keep its Node for ever; another machine has no open port."""
    cloud, asked = await Started(lab.config(**BY_ADDRESS)).start(), web(annotations=annotations)
    gone = lab.add_machine("gone")
    nodes = [host(gone), host(lab.add_machine("other"))]
    await cloud.ensure(asked, *nodes)
    (interface,) = (one for one in lab.objects("networkInterfaces").values() if "gone" in one["id"])
    ip = interface["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"]
    lab.delete_machine(gone["id"])
    lab.delete("networkInterfaces", interface["name"])
    await cloud.ensure(asked, *nodes)
    assert members(lab) == {"gone", "other"}
    new = lab.add_machine("new", ip={"privateIPAddress": ip})
    await cloud.ensure(asked, *nodes, *[host(new)] * is_node)
    assert members(lab) == {"other", *["new"] * is_node}
    reached = set[str]().union(*map(destinations_of, rules(lab).values()))
    assert (ip in reached) == (is_node and bool(annotations))


async def test_a_node_of_a_long_name_keeps_no_other_from_a_pool_of_addresses(lab: Lab) -> None:
    """Azure refuses all of a pool with a name of more than 80 characters."""
    long = [host(lab.add_machine(f"long-{number}"), "a" * 200 + str(number)) for number in range(2)]
    cloud, near = await Started(lab.config(**BY_ADDRESS)).start(), host(lab.add_machine("near"))
    await cloud.ensure(web(), *long, near)
    found = members(lab)
    assert len(found) == 3
    assert max(map(len, found)) <= 80
    lab.delete_machine(ids.machine_of(long[0].provider_id))
    await cloud.ensure(web(), *long, near)
    assert members(lab) == found, "one that is not known stays"
    await cloud.ensure(web(), near)
    assert members(lab) == {"near"}


async def _why(cloud: Started, name: str, nodes: list[Node]) -> str:
    return str((await cloud.describe(*nodes))[name])


async def test_a_route_to_a_machine_that_is_not_known_is_no_blackhole(lab: Lab) -> None:
    """AZ76: also while another Node's route has to be explained."""
    cloud = await Started(lab.config()).start()
    near, far = host(lab.add_machine("near")), host(lab.add_machine("far", OTHER_GROUP))
    await create(cloud, near, far)
    lab.fail(f"GET .*resourceGroups/{OTHER_GROUP}/.*", 100, status=403, code="AuthorizationFailed")
    assert await listed(cloud, near, far) == {
        "near____102440024": ("near", False),
        "far____102441024": ("far", False),
    }


@pytest.mark.parametrize("kind", ["nodeIPConfiguration", "nodeIP"])
async def test_a_group_that_is_not_there_stops_no_service(lab: Lab, kind: str) -> None:
    """AZ76: any kubelet may name one, or one that may not be read."""
    cloud = await Started(lab.config(loadBalancerBackendPoolConfigurationType=kind)).start()
    near, far = host(lab.add_machine("near")), host(lab.add_machine("far", OTHER_GROUP))
    group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/never/providers"
    bad = node_named("bad", f"azure://{group}/Microsoft.Compute/virtualMachines/x")
    await cloud.ensure(web(), near, far, bad)
    assert members(lab) == {"near", "far"}
    lab.fail(f"GET .*resourceGroups/{OTHER_GROUP}/.*", 100, status=403, code="AuthorizationFailed")
    await cloud.ensure(web(), near, far, bad)
    assert members(lab) == {"near", "far"}
    lab.heal()
    cloud = await Started(lab.config(loadBalancerBackendPoolConfigurationType=kind)).start()
    lab.fail(f"GET .*resourceGroups/{OTHER_GROUP}/.*", 100, status=500, code="InternalServerError")
    with pytest.raises(CloudError):
        await cloud.ensure(web(), near, far, bad)


@pytest.mark.parametrize("group", ["a" * 5000, "a<b>", "refused"], ids=["long", "odd", "refused"])
async def test_a_group_of_a_name_that_is_refused_stops_no_service(lab: Lab, group: str) -> None:
    """Nothing is asked about what no group is called; what is refused otherwise says nothing."""
    lab.fail("GET .*resourceGroups/refused/.*", 100, status=400, code="InvalidResourceGroup")
    cloud, near = await Started(lab.config()).start(), host(lab.add_machine("near"))
    path = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{group}/providers"
    bad = node_named("bad", f"azure://{path}/Microsoft.Compute/virtualMachines/x")
    await create(cloud, near)
    await cloud.ensure(web(), near, bad)
    assert members(lab) == {"near"}
    assert await listed(cloud, near, bad) == {"near____102440024": ("near", False)}
    asked = {one["path"].split("/")[4].lower() for one in lab.calls() if "/resource" in one["path"]}
    assert asked <= {GROUP, "refused"}


async def test_a_few_machines_of_another_group_have_no_list_of_it_read_for_each_service(
    lab: Lab,
) -> None:
    """It may have thousands, and a kubelet may name one that is not there."""
    cloud = await Started(lab.config(vmType="vmss", **BY_ADDRESS)).start()
    near, far = host(lab.add_machine("near")), host(lab.add_machine("far", OTHER_GROUP))
    lab.add_scale_set("set", 1, OTHER_GROUP)
    member = f"{path_of('virtualMachineScaleSets', 'set', OTHER_GROUP)}/virtualMachines/0"
    of_set = host({"id": member}, "set000000")
    bad = node_named("bad", f"azure://{path_of('virtualMachines', 'never', OTHER_GROUP)}")
    nodes, expected = [near, far, of_set, bad], {"near", "far", "set000000"}
    for name in ("first", "second"):
        made = await cloud.ensure(web(name), *nodes)
        assert made.warnings == ("the machine is not known of nodes bad",)
        assert members(lab) == expected
    assert not _lists_elsewhere(lab)
    nodes.append(host(lab.add_machine("more", OTHER_GROUP)))
    await cloud.ensure(web("third"), *nodes)
    assert members(lab) == {*expected, "more"}
    assert _lists_elsewhere(lab), "that many are read together"


async def test_a_machine_of_another_group_is_not_read_for_each_service(lab: Lab) -> None:
    """Azure takes 12 reads of one machine a minute, and has all others wait after that."""
    cloud, machine = await Started(lab.config(**BY_ADDRESS)).start(), lab.add_machine("near")
    far = lab.add_machine("far", OTHER_GROUP)
    missing = {"id": path_of("virtualMachines", "never", OTHER_GROUP), "name": "never"}
    lab.forget_calls()
    for number in range(5):
        asked = web(f"web-{number}", ports=[port(80 + number, node_port=30080 + number)])
        await cloud.ensure(asked, host(machine), host(far), host(missing))
    paths = [one["path"] for one in lab.calls() if one["method"] == "GET"]
    for item in (far, missing):
        assert sum(ids.same(path, item["id"]) for path in paths) == 1
    assert members(lab) == {"near", "far"}


@pytest.mark.parametrize("kind", ["nodeIPConfiguration", "nodeIP"])
async def test_a_machine_of_another_group_is_not_read_for_each_service_that_a_node_leaves(
    lab: Lab, kind: str
) -> None:
    """While a pool is written, all Services find that a machine leaves it."""
    cloud = await Started(lab.config(loadBalancerBackendPoolConfigurationType=kind)).start()
    near, other = (host(lab.add_machine(name)) for name in ("near", "other"))
    missing = {"id": path_of("virtualMachines", "never", OTHER_GROUP), "name": "never"}
    lab.forget_calls()
    for _ in range(3):
        for nodes in ([near, other], [near]):
            await cloud.ensure(web(), *nodes, host(missing))
    assert sum(ids.same(one["path"], missing["id"]) for one in lab.calls()) == 1
    assert members(lab) == {"near"}


def _lists_elsewhere(lab: Lab) -> list[str]:
    """Lists of another group or of the subscription."""
    paths = (one["path"] for one in lab.calls() if one["method"] == "GET")
    return [path for path in paths if LIST_ELSEWHERE.fullmatch(path)]
