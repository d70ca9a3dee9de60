"""Routes and disks in the lab: rows AZ54, AZ55 and AZ56."""

import asyncio

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.harness import node, volume
from ccm.errors import CloudError, Refused, RetryAfter
from ccm.model.cloud import Gone, Unknown, VolumePlace
from ccm.model.objects import Json, Node
from ccm.providers.azure import shared_writes
from ccm.providers.azure.volumes import CSI_DRIVER
from tests.labs.azure.lab import GROUP, OTHER_GROUP, REGION, SUBSCRIPTION, TABLE, Lab, path_of
from tests.providers.azure.conftest import Started, host

NOT_OURS = "99999999-2222-4333-8444-555555555555"


def routes_of(lab: Lab) -> dict[str, str]:
    found = lab.get("routeTables", TABLE)["properties"]["routes"]
    return {one["name"]: one["properties"]["nextHopIpAddress"] for one in found}


async def create(cloud: Started, *nodes: Node) -> None:
    assert cloud.routes
    routes = cloud.routes
    made = (invoke(routes.create, one, f"10.244.{at}.0/24") for at, one in enumerate(nodes))
    await asyncio.gather(*made)


async def listed(cloud: Started, *nodes: Node) -> dict[str, tuple[str, bool]]:
    assert cloud.routes
    found = await invoke(cloud.routes.list, list(nodes))
    return {one.id: (one.node, one.is_blackhole) for one in found}


async def test_routes_made_together_are_few_writes_of_the_table(lab: Lab, cloud: Started) -> None:
    """AZ54: named as upstream names them, and one of a replaced machine leads nowhere."""
    nodes = [host(lab.add_machine(f"node-{number}")) for number in range(10)]
    await create(cloud, *nodes)
    assert len(lab.writes()) < len(nodes) / 2  # who read together go on one in a turn
    assert "node-3____102443024" in routes_of(lab)
    lab.delete_machine(nodes[3].provider_id.removeprefix("azure://"))
    lab.delete("networkInterfaces", "node-3-nic")
    nodes[3] = host(lab.add_machine("node-3"))
    found = await listed(cloud, *nodes)
    assert [name for name, (_, is_hole) in found.items() if is_hole] == ["node-3____102443024"]


async def test_a_route_of_too_long_a_name_is_in_no_write_of_others(
    lab: Lab, cloud: Started
) -> None:
    """Azure refuses all of the table with it, which was written by halves then, each time."""
    hostile = host(lab.add_machine("other"), "a" * 70)
    with pytest.raises(Refused, match="takes no route with a name as long"):
        await create(cloud, hostile)
    assert lab.writes() == []


async def test_a_machine_of_another_group_has_a_route(lab: Lab, cloud: Started) -> None:
    """And keeps it, when another Node's route has to be explained."""
    nodes = [host(lab.add_machine("node-0")), host(lab.add_machine("node-1", OTHER_GROUP))]
    await create(cloud, *nodes)
    found = await listed(cloud, *nodes)
    assert [name for name, (_, is_hole) in found.items() if is_hole] == []
    assert len(found) == 2


async def test_a_machine_that_a_list_leaves_out_keeps_its_route(lab: Lab, cloud: Started) -> None:
    """Machines are listed only because another route has no Node any more."""
    nodes = [host(lab.add_machine(f"node-{number}")) for number in range(3)]
    await create(cloud, *nodes)
    for each, hop in zip(nodes, routes_of(lab).values(), strict=True):
        each.raw["status"] = {"addresses": [{"type": "InternalIP", "address": hop}]}
    for number in (1, 2):
        lab.delete_machine(nodes[number].provider_id.removeprefix("azure://"))
        lab.delete("networkInterfaces", f"node-{number}-nic")
    found = await listed(cloud, *nodes[:2])
    assert [name for name, (_, is_hole) in found.items() if is_hole] == ["node-2____102442024"]


@pytest.mark.parametrize("is_denied", [False, True])
async def test_a_node_without_its_address_has_no_list_of_machines_read(
    lab: Lab, cloud: Started, is_denied: bool
) -> None:
    """Its kubelet may keep it out for ever, and routes are listed every ten seconds."""
    nodes = [host(lab.add_machine(f"node-{number}")) for number in range(5)]
    await create(cloud, *nodes)
    for each, hop in zip(nodes[1:], [*routes_of(lab).values()][1:], strict=True):
        each.raw["status"] = {"addresses": [{"type": "InternalIP", "address": hop}]}
    if is_denied:
        lab.fail("GET .*/virtualMachines/node-0", status=403, code="AuthorizationFailed")
    lab.forget_calls()
    found = await listed(cloud, *nodes)
    assert [name for name, (_, is_hole) in found.items() if is_hole] == []
    assert len(found) == len(nodes)
    paths = [one["path"].rpartition("/")[2] for one in lab.calls()]
    assert paths == [TABLE, "node-0", *([] if is_denied else ["node-0-nic"])]


async def test_a_machine_of_another_network_with_an_address_of_ours_takes_no_route(
    lab: Lab, cloud: Started
) -> None:
    """Any Node has another group read: networks there may have the same addresses."""
    one = host(lab.add_machine("node-0"))
    await create(cloud, one)
    (hop,) = routes_of(lab).values()
    lab.add_machine("other", OTHER_GROUP, vnet="other")
    twin = lab.get("networkInterfaces", "other-nic", OTHER_GROUP)
    twin["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"] = hop
    lab.put("networkInterfaces", "other-nic", twin, OTHER_GROUP)
    bad = node("bad", f"azure://{path_of('virtualMachines', 'never', OTHER_GROUP)}")
    assert await listed(cloud, one, bad) == {"node-0____102440024": ("node-0", False)}
    lab.delete_machine(one.provider_id.removeprefix("azure://"))
    lab.delete("networkInterfaces", "node-0-nic")
    assert await listed(cloud, bad) == {"node-0____102440024": ("", True)}, "it leads nowhere"


async def test_a_route_by_hand_is_kept_and_one_in_the_way_is_named(
    lab: Lab, cloud: Started
) -> None:
    """AZ55, AZ56: also one whose name is a Node's, as old controllers made them."""
    one = host(lab.add_machine("node-0"))
    for name, prefix in (("to-office", "192.168.0.0/16"), ("node-0", "10.244.0.0/24")):
        properties: Json = {"addressPrefix": prefix, "nextHopType": "VirtualAppliance"}
        body = {"properties": {**properties, "nextHopIpAddress": "10.224.9.9"}}
        lab.put(f"routeTables/{TABLE}/routes", name, body)
    assert await listed(cloud, one) == {}
    with pytest.raises(Refused, match=r"route node-0 leads 10.244.0.0/24 to 10.224.9.9 already"):
        await create(cloud, one)
    assert len(routes_of(lab)) == 2


async def test_a_table_that_is_missing_is_made(lab: Lab) -> None:
    cloud = await Started(lab.config(routeTableName="new")).start()
    assert await listed(cloud) == {}
    await create(cloud, host(lab.add_machine("node-0")))
    assert lab.get("routeTables", "new")["properties"]["routes"]


@pytest.mark.parametrize("times", [1, shared_writes.MOST_READS])
async def test_a_change_of_someone_else_is_read_and_kept(
    lab: Lab, cloud: Started, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond a few times the controller comes back."""
    monkeypatch.setattr("ccm.providers.azure.api.RACE_RETRY", 0.01)
    fault = {"status": 412, "code": "PreconditionFailed", "message": "changed"}
    lab.fail("PUT .*routeTables", times, **fault)
    one = host(lab.add_machine("node-0"))
    if times == 1:
        await create(cloud, one)
        assert len(routes_of(lab)) == 1
    else:
        with pytest.raises(RetryAfter):
            await create(cloud, one)


async def test_disks_are_read_in_one_list(lab: Lab, cloud: Started) -> None:
    """Their zones as Nodes have them; one without zones can be used in the region."""
    assert cloud.volumes
    handles = {
        "zoned": lab.put("disks", "zoned", {"zones": ["2"], "properties": {}})["id"],
        "regional": lab.put("disks", "regional", {"properties": {}})["id"].upper(),
        "gone": path_of("disks", "gone"),
        "odd": "a-blob.vhd",
        "new": "",
    }
    asked = [
        volume(name, {"csi": {"driver": CSI_DRIVER, "volumeHandle": handle}})
        for name, handle in handles.items()
    ]
    answers = await invoke(cloud.volumes.describe, asked)
    assert answers["zoned"] == VolumePlace((f"{REGION}-2",), REGION)
    assert answers["regional"] == VolumePlace((), REGION)
    assert isinstance(answers["gone"], Gone)
    assert isinstance(answers["odd"], Gone)
    assert isinstance(answers["new"], Gone | Unknown)
    assert cloud.operations.count("ListDisks") == 1


async def test_an_id_of_another_place_costs_no_other_disk_its_answer(
    lab: Lab, cloud: Started
) -> None:
    """Of a group that is gone, of a subscription that is not ours, or of one of another tenant."""
    assert cloud.volumes
    own = lab.put("disks", "own", {"zones": ["2"], "properties": {}})["id"]
    group, foreign = own.replace(GROUP, "never"), own.replace(SUBSCRIPTION, NOT_OURS)
    code = "InvalidAuthenticationTokenTenant"
    lab.fail(f"GET /subscriptions/{NOT_OURS}/.*", 10, status=401, code=code)
    for handles in ([own, group], [own, foreign], [foreign], [own]):
        asked = [
            volume(handle, {"csi": {"driver": CSI_DRIVER, "volumeHandle": handle}})
            for handle in handles
        ]
        if handles == [foreign]:
            with pytest.raises(CloudError, match=code):
                await invoke(cloud.volumes.describe, asked)
            continue
        answers = await invoke(cloud.volumes.describe, asked)
        assert answers[own] == VolumePlace((f"{REGION}-2",), REGION)
    assert cloud.operations.count("GetToken") == 1, "another tenant refuses no credentials"
