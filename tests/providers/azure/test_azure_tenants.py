"""What tenants write in their Services harms no other Service."""

from typing import Any

import pytest

from ccm.cloud.testkit.harness import port
from ccm.errors import Refused
from ccm.model.objects import Node
from tests.labs.azure.lab import Lab
from tests.providers.azure.conftest import Started, host
from tests.providers.azure.test_azure_balancers import addresses, delete, parts, rules, web

RANGES: dict[str, Any] = {"loadBalancerSourceRanges": ["192.0.2.0/24"]}
INTERNAL = {"load-balancer-internal": "true"}
OTHER_PORT: dict[str, Any] = {"ports": [port(443, node_port=30443)]}


@pytest.fixture
def node(lab: Lab) -> Node:
    return host(lab.add_machine("node-1"))


async def test_the_address_of_another_service_is_no_additional_one(
    lab: Lab, cloud: Started, node: Node
) -> None:
    """It would be opened to everybody, and closed to all with the Service that named it."""
    ip = (await cloud.ensure(web("victim", **RANGES), node)).ingress[0].ip
    before = rules(lab)
    attacker = web("attacker", {"additional-public-ips": ip})
    with pytest.raises(Refused, match=f"{ip} is the address of another Service"):
        await cloud.ensure(attacker, node)
    assert rules(lab) == before
    await delete(cloud, attacker)
    assert rules(lab) == before


@pytest.mark.parametrize("ip", ["10.224.0.4", "fd00::1", "127.0.0.1", "fe80::1%eth0", "0.0.0.0"])
async def test_an_address_that_is_not_public_is_no_additional_one(
    lab: Lab, cloud: Started, node: Node, ip: str
) -> None:
    """Of a machine such as the first, the tenant's ports would be open to everybody."""
    asked = web(annotations={"additional-public-ips": ip}, **OTHER_PORT)
    with pytest.raises(Refused, match="is not a public address"):
        await cloud.ensure(asked, node)
    assert rules(lab) == {}


async def test_tags_by_which_controllers_know_their_addresses_are_not_the_tenants(
    lab: Lab, cloud: Started, node: Node
) -> None:
    ip = (await cloud.ensure(web("victim"), node)).ingress[0].ip
    ((_, before),) = addresses(lab).items()
    tags = "K8s-Azure-Cluster-Name=theirs,k8s-azure-service=default/x,Service=default/y,colour=red"
    attacker = web("attacker", {"pip-tags": tags}, loadBalancerIP=ip, **OTHER_PORT)
    made = await cloud.ensure(attacker, node)
    assert len([one for one in made.warnings if "pip-tags" in one]) == 3
    ((_, after),) = addresses(lab).items()
    users = {"k8s-azure-service": "default/victim,default/attacker"}
    assert after["tags"] == before["tags"] | users | {"colour": "red"}
    await cloud.ensure(web("victim"), node)


async def test_where_services_are_restricted_they_share_no_internal_address(
    lab: Lab, node: Node
) -> None:
    cloud = await Started(lab.config(), restricts_annotations=True).start()
    ip = (await cloud.ensure(web("victim", INTERNAL), node)).ingress[0].ip
    before = parts(lab, "kit-internal")
    attacker = web("attacker", INTERNAL, loadBalancerIP=ip, **OTHER_PORT)
    with pytest.raises(Refused, match="is another Service's"):
        await cloud.ensure(attacker, node)
    assert parts(lab, "kit-internal") == before


@pytest.mark.parametrize("tags", ["a/b", "x\ny", ",".join(["A"] * 200)])
async def test_a_service_tag_that_is_none_is_refused(
    lab: Lab, cloud: Started, node: Node, tags: str
) -> None:
    with pytest.raises(Refused, match="allowed-service-tags"):
        await cloud.ensure(web(annotations={"allowed-service-tags": tags}), node)
    assert not addresses(lab)
