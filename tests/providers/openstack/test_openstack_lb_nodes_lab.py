"""Nodes behind load balancers on a real Octavia and Neutron: which, and what lets traffic in."""

import asyncio
import math

import pytest

from ccm.cloud.testkit.harness import port
from ccm.errors import RetryAfter
from ccm.model.objects import Node
from ccm.providers.openstack.lb import networks
from tests.providers.openstack.balancers import CALLER, LOCAL, BalancerLab, Worker, service_of
from tests.support.running import long, until

pytestmark = pytest.mark.asyncio


async def test_security_groups_follow_where_they_are_managed(octavia: BalancerLab) -> None:
    """OS79, OS82, OS84, OS107: and when that is switched off, nothing of them is left."""
    before, nodes, asked = octavia.resources(), octavia.nodes, service_of(**LOCAL)
    worker = await Worker(octavia.config_with("manage-security-groups = true")).start()
    await worker.ensure(asked, nodes[:3])
    (group,) = octavia.groups()

    def on() -> set[str]:
        listed = octavia.get("neutron", f"/ports?security_groups={group['id']}")
        return {one["device_id"] for one in listed}

    rules = {
        (one["direction"], one["port_range_min"], one["remote_ip_prefix"])
        for one in group["security_group_rules"]
        if one["direction"] == "ingress"
    }
    assert rules == {("ingress", 30080, "10.50.0.0/16"), ("ingress", 32000, "10.50.0.0/16")}
    assert len(group["security_group_rules"]) == 4, "with those for what goes out"
    assert on() == {node.uid for node in nodes[:3]}
    rule = next(one for one in group["security_group_rules"] if one["port_range_min"] == 30080)
    octavia.call("neutron", "DELETE", f"/security-group-rules/{rule['id']}")
    await worker.update(asked, nodes[2:5])
    assert on() == {node.uid for node in nodes[2:5]}
    assert len(octavia.groups()[0]["security_group_rules"]) == 4
    plain = await Worker(octavia.config_with()).start()
    await plain.ensure(asked, nodes[2:5])
    assert not octavia.groups()
    await worker.ensure(asked, nodes[:1])
    octavia.delete("octavia", f"/lbaas/loadbalancers/{octavia.balancer()['id']}?cascade=true")
    await worker.delete(asked)
    octavia.clear() if octavia.is_split else None
    assert octavia.resources() == before


async def test_nodes_that_come_while_it_is_made_are_a_request_a_pool_and_no_look_at_its_parts(
    octavia: BalancerLab, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(networks, "FIXED_KEPT", math.inf)  # however long Octavia takes
    asked, nodes = service_of(ports=[port(80), port(443, node_port=30443)]), octavia.nodes[:4]
    with pytest.raises(RetryAfter):
        await worker.balancers.ensure(asked, nodes[:2])
    worker.forget_calls()
    made = await worker.ensure(asked, nodes)
    assert [one["floating_ip_address"] for one in octavia.floating_ips()] == [made.ingress[0].ip]
    assert octavia.members() == [{node.name for node in nodes}] * 2
    assert sorted(worker.without_polls) == ["ListPorts", "UpdateMembers", "UpdateMembers"]


@long
async def test_nodes_are_chosen_by_their_labels_as_they_are_now(
    octavia: BalancerLab, worker: Worker
) -> None:
    """OS48: which labels count is told, so that a change of them is a change of backends."""
    asked = service_of("web", {"node-selector": "pool=web"})
    assert set(worker.balancers.selector_labels(asked)) == {"pool"}
    web, other = (with_pool(node, "web") for node in octavia.nodes[:2])
    await worker.ensure(asked, [web, with_pool(other, "db")])
    assert octavia.members() == [{web.name}]
    await worker.update(asked, [web, other])
    assert octavia.members() == [{web.name, other.name}]


def with_pool(node: Node, pool: str) -> Node:
    return Node({**node.raw, "metadata": {**node.raw["metadata"], "labels": {"pool": pool}}})


@long
async def test_a_group_that_someone_adds_meanwhile_is_not_lost(octavia: BalancerLab) -> None:
    """OS80: here while our change of the same port is on its way."""
    worker = await Worker(octavia.config_with("manage-security-groups = true")).start()
    one = octavia.nodes[0]
    body = {"security_group": {"name": "lb-sg-by-hand"}}
    by_hand = octavia.call("neutron", "POST", "/security-groups", body)["security_group"]["id"]
    (port_id,) = octavia.get("neutron", f"/ports?device_id={one.uid}&fields=id")

    def groups() -> list[str]:
        found: list[str] = octavia.get("neutron", f"/ports/{port_id['id']}")["security_groups"]
        return found

    change = {"port": {"security_groups": [*groups(), by_hand]}}
    slow = {"service": "neutron", "method": "PUT", "path": "/ports/", "delay": 3.0, "count": 1}
    with octavia.faults({**slow, "agent": CALLER}):
        ensuring = asyncio.create_task(worker.ensure(service_of(), [one]))
        await until("our change is on its way", lambda: "UpdatePort" in worker.operations)
        await asyncio.to_thread(octavia.call, "neutron", "PUT", f"/ports/{port_id['id']}", change)
        await ensuring
    assert {by_hand, *(group["id"] for group in octavia.groups())} <= {*groups()}
    await worker.delete(service_of())
    assert by_hand in groups()
