"""What tenants and kubelets write costs no other Service its address or its Nodes."""

from typing import Any

import pytest

from ccm.errors import CloudError, Refused
from ccm.providers.gce.lb.request import SUBNET, TYPE
from tests.labs.gce.project import PROJECT, REGION, ZONES
from tests.labs.gce.server import Gce
from tests.providers.gce.balancers import NAME, ensure, hosts, only, web
from tests.providers.gce.conftest import Start, Started, host

IP = "198.18.9.9"


@pytest.mark.parametrize(
    ("kind", "annotations"),
    [({}, {}), ({"addressType": "INTERNAL"}, {TYPE: "Internal"})],
    ids=["external", "internal"],
)
async def test_an_address_that_is_held_for_another_service_is_refused(
    gce: Gce, cloud: Started, kind: dict[str, Any], annotations: dict[str, str]
) -> None:
    """While a rule is replaced, its address is reserved and has no user."""
    held = {
        "address": IP,
        "addressType": "EXTERNAL",
        "networkTier": "PREMIUM",
        "status": "RESERVED",
        "description": '{"kubernetes.io/service-name":"default/other"}',
    }
    gce.cloud.put(f"projects/{PROJECT}/regions/{REGION}/addresses/a1", "address", **held | kind)
    with pytest.raises(Refused, match="another Service"):
        await ensure(cloud, web(loadBalancerIP=IP, annotations=annotations), *hosts(gce))
    assert gce.writes() == []


@pytest.mark.parametrize("name", ["projects/other/regions/r/subnetworks/s", "../../global/x", "S"])
async def test_a_subnetwork_is_a_name(gce: Gce, cloud: Started, name: str) -> None:
    asked = web(annotations={TYPE: "Internal", SUBNET: name})
    with pytest.raises(Refused, match="subnet"):
        await ensure(cloud, asked, *hosts(gce))
    assert gce.writes() == []


async def test_a_node_in_another_region_keeps_no_other_out(gce: Gce, cloud: Started) -> None:
    """Networks are global: a kubelet may name a machine that no pool of the region takes."""
    far = host(gce.cloud.add_instance("far", "us-east1-b"))
    near = hosts(gce, 2)
    await ensure(cloud, web(), far, *near)
    members = only(gce, "targetPools")["instances"]
    assert [one.rpartition("/")[2] for one in members] == ["n-0", "n-1"]
    await ensure(cloud, web(annotations={TYPE: "Internal"}), far, *near)
    assert len(only(gce, "backendServices")["backends"]) == 2


async def test_a_node_without_a_network_tag_keeps_no_other_out(gce: Gce, start: Start) -> None:
    cloud = await start("node-tags = ")
    bad, good = hosts(gce, 2)
    for name, tags in (("n-0", ["x"]), ("n-1", ["n"])):
        gce.cloud.named("instances")[name]["tags"] = {"items": tags}
    made = await ensure(cloud, web(), bad, good)
    assert gce.cloud.named("firewalls")[f"k8s-fw-{NAME}"]["targetTags"] == ["n"]
    assert any(f"{ZONES[0]}/n-0 has no network tag" in one for one in made.warnings)
    with pytest.raises(CloudError, match="set node-tags"):
        await ensure(cloud, web(), bad)
