"""Load balancers on a real Octavia and Neutron: what there is in the end, and at how many calls."""

import asyncio

import pytest

from ccm.cloud.testkit.harness import port
from ccm.errors import CloudError, NoRoom, Refused, RetryAfter
from ccm.model.cloud import IpMode
from ccm.model.objects import Json
from ccm.model.service import Service
from ccm.providers.openstack.lb.annotations import INTERNAL
from tests.providers.openstack.balancers import (
    CALLER,
    LOCAL,
    BalancerLab,
    Worker,
    service_of,
)
from tests.support.running import long

pytestmark = pytest.mark.asyncio

NAME = "kube_service_kubernetes_default_web"
TWO_PORTS = [port(80), port(443, node_port=30443)]


async def test_a_service_has_its_load_balancer_at_few_calls_and_leaves_nothing(
    octavia: BalancerLab, worker: Worker
) -> None:
    """OS34, OS47, OS83, OS84, OS99."""
    before, asked, nodes = octavia.resources(), service_of(), octavia.nodes
    made = await worker.ensure(asked, nodes[:2])
    assert len(worker.without_polls) <= 11
    assert worker.writes == ["CreateLoadBalancer", "CreateFloatingIp"]
    (ingress,) = made.ingress
    assert ingress.ip_mode is IpMode.VIP
    assert made.annotations == {"loadbalancer.openstack.org/load-balancer-address": ingress.ip}
    assert [one["floating_ip_address"] for one in octavia.floating_ips()] == [ingress.ip]
    assert octavia.members() == [{node.name for node in nodes[:2]}]
    worker.forget_calls()
    await worker.update(asked, nodes[:3])
    assert worker.writes == ["UpdateMembers"]
    assert octavia.members() == [{node.name for node in nodes[:3]}]
    again = await Worker(octavia.config_with()).start()
    assert await again.ensure(asked, nodes[:3]) == made
    await again.update(asked, nodes[:3][::-1])
    assert await again.balancers.get(asked) == made
    assert [one.service_uid for one in await again.balancers.owned()] == [asked.uid]
    assert not again.writes
    await again.delete(asked)
    await again.delete(asked)
    assert octavia.resources() == before


def made_by_upstream(octavia: BalancerLab) -> tuple[Json, Json]:
    """The load balancer and the floating IP that upstream makes for one port."""
    listener = {
        "name": f"listener_0_{NAME}",
        "protocol": "TCP",
        "protocol_port": 80,
        "connection_limit": -1,
        "tags": [NAME],
        "allowed_cidrs": ["0.0.0.0/0"],
        "timeout_client_data": 50000,
        "timeout_member_connect": 5000,
        "timeout_member_data": 50000,
        "timeout_tcp_inspect": 0,
        "default_pool": {
            "name": f"pool_0_{NAME}",
            "protocol": "TCP",
            "lb_algorithm": "ROUND_ROBIN",
            "members": [
                {
                    "name": node.name,
                    "address": node.addresses[0]["address"],
                    "protocol_port": 30080,
                    "subnet_id": octavia.subnet,
                }
                for node in octavia.nodes[:2]
            ],
        },
    }
    body = {
        "name": NAME,
        "description": "Kubernetes external service default/web from cluster kubernetes",
        "tags": [NAME],
        "provider": "amphora",
        "vip_subnet_id": octavia.subnet,
        "listeners": [listener],
    }
    made = octavia.act_on_balancer("POST", "/loadbalancers", {"loadbalancer": body})["loadbalancer"]
    described = "Floating IP for Kubernetes external service default/web from cluster kubernetes"
    wanted = {
        "floating_network_id": octavia.world["networks"]["public"],
        "port_id": made["vip_port_id"],
        "description": described,
    }
    floating = octavia.call("neutron", "POST", "/floatingips", {"floatingip": wanted})
    return made, floating["floatingip"]


async def test_upstreams_load_balancer_is_taken_over_by_its_annotation_without_a_write(
    octavia: BalancerLab, worker: Worker
) -> None:
    """OS74, OS75: by its name alone it is anybody's, and a stale annotation does no harm."""
    before = octavia.resources()
    made, floating = made_by_upstream(octavia)
    by_id = {"load-balancer-id": made["id"]}
    for stranger in (service_of(), service_of("web", by_id, uid="u-2")):
        with pytest.raises(Refused):
            await worker.ensure(stranger, octavia.nodes[:2])
    elsewhere = service_of("web", by_id, "203.0.113.99", uid="u-2")
    with pytest.raises(Refused, match="its address is not in the Service's status"):
        await worker.ensure(elsewhere, octavia.nodes[:2])
    for stranger in (service_of(), elsewhere):
        with pytest.raises(Refused):
            await worker.delete(stranger)
    assert octavia.balancer()["id"] == made["id"]
    assert not worker.writes
    asked = service_of("web", {"load-balancer-id": made["id"]}, floating["floating_ip_address"])
    found = await worker.ensure(asked, octavia.nodes[:2])
    await worker.update(asked, octavia.nodes[:2])
    assert [one.ip for one in found.ingress] == [floating["floating_ip_address"]]
    assert not worker.writes
    await worker.delete(asked)
    assert octavia.resources() == before
    again = await worker.ensure(asked, [])
    assert "there is no load balancer" in again.warnings[0]


@long
async def test_ports_options_and_drift_are_put_right_in_place(
    octavia: BalancerLab, worker: Worker
) -> None:
    """OS35, OS45, OS46, OS50, OS53, OS54, OS56, OS58, OS73, OS103."""
    nodes = octavia.nodes[:2]
    first = await worker.ensure(service_of(), nodes)
    (old,) = octavia.parts("listeners")
    asked = service_of(ports=TWO_PORTS[::-1], sessionAffinity="ClientIP", **LOCAL)
    assert (await worker.ensure(asked, nodes)).ingress == first.ingress
    assert old["id"] in [one["id"] for one in octavia.parts("listeners")]
    assert {one["type"] for one in octavia.monitors()} == {"HTTP"}
    assert {one["session_persistence"]["type"] for one in octavia.parts("pools")} == {"SOURCE_IP"}
    worker.forget_calls()
    await worker.ensure(asked, nodes)
    assert not worker.writes
    internal = service_of("web", {INTERNAL: "true", "proxy-protocol": "v2"})
    (inside,) = (await worker.ensure(internal, nodes)).ingress
    assert (inside.ip, inside.ip_mode) == (octavia.balancer()["vip_address"], IpMode.PROXY)
    assert [one["protocol"] for one in octavia.parts("pools")] == ["PROXYV2"]
    assert not octavia.floating_ips()
    (pool,) = octavia.parts("pools")
    octavia.act_on_balancer("DELETE", f"/pools/{pool['id']}")
    ranged = service_of(loadBalancerSourceRanges=["192.0.2.0/24"])
    await worker.ensure(ranged, nodes)
    (listener,) = octavia.parts("listeners")
    assert listener["allowed_cidrs"] == ["192.0.2.0/24"]
    assert octavia.members() == [{node.name for node in nodes}]
    (floating,) = octavia.floating_ips()
    gone = octavia.balancer()["id"]
    octavia.delete("octavia", f"/lbaas/loadbalancers/{gone}?cascade=true")
    (ingress,) = (await worker.ensure(ranged, nodes)).ingress
    assert ingress.ip == floating["floating_ip_address"] or octavia.is_split


async def test_services_share_a_load_balancer_until_the_last_one_goes(
    octavia: BalancerLab, worker: Worker
) -> None:
    """OS68, OS69, OS70, OS72."""
    before, nodes, owner = octavia.resources(), octavia.nodes[:1], service_of()
    made = await worker.ensure(owner, nodes)
    balancer_id = octavia.balancer()["id"]

    def sharing(name: str, number: int, **more: str) -> Service:
        annotations = {"load-balancer-id": balancer_id, **more}
        return service_of(name, annotations, ports=[port(number, node_port=30500)])

    second = sharing("second", 81)
    restricted = await Worker(octavia.config_with(), restricts_annotations=True).start()
    with pytest.raises(Refused, match="not the Service's own"):
        await restricted.ensure(second, nodes)
    assert (await restricted.ensure(owner, nodes)).ingress == made.ingress
    await restricted.close()
    with pytest.raises(Refused, match="used by another listener"):
        await worker.ensure(sharing("second", 80), nodes)
    with pytest.raises(Refused, match="internal"):
        await worker.ensure(sharing("second", 81, **{INTERNAL: "true"}), nodes)
    assert (await worker.ensure(second, nodes)).ingress == made.ingress
    for asked, is_taken in ((second, False), (sharing("second", 80), True), (owner, False)):
        found = await worker.balancers.get(asked)
        assert found
        assert (found.is_shared, found.is_contested) == (asked is not owner, is_taken)
    with pytest.raises(Refused, match="max-shared-lb"):
        await worker.ensure(sharing("third", 82), nodes)
    worker.forget_calls()
    await worker.ensure(owner, nodes)
    await worker.ensure(second, nodes)
    assert not worker.writes
    await worker.delete(owner)
    assert [one["protocol_port"] for one in octavia.parts("listeners")] == [81]
    alone = service_of("second", ports=[port(81, node_port=30500)])
    assert (await worker.ensure(alone, nodes)).name.endswith("_second")
    assert octavia.balancer()["id"] != balancer_id, "the last one took it away"
    await worker.delete(alone)
    await worker.delete(owner)
    assert octavia.is_split or octavia.resources() == before


@long
async def test_one_made_by_hand_is_used_and_never_deleted(
    octavia: BalancerLab, worker: Worker
) -> None:
    """OS71, OS72, OS108."""
    wanted = {"name": "by-hand", "vip_subnet_id": octavia.subnet}
    octavia.act_on_balancer("POST", "/loadbalancers", {"loadbalancer": wanted})
    asked = service_of("web", {"load-balancer-id": octavia.balancer()["id"], INTERNAL: "true"})
    await worker.ensure(asked, octavia.nodes[:1])
    assert len(octavia.parts("listeners")) == 1
    await worker.delete(asked)
    left = octavia.balancer()
    assert (left["name"], left["listeners"], left["tags"]) == ("by-hand", [], [])


async def test_a_lost_answer_or_a_killed_controller_makes_no_second_load_balancer(
    octavia: BalancerLab, worker: Worker
) -> None:
    """OS37, OS38, OS39, OS63: and the quota of floating IPs keeps the load balancer."""
    failing = {"service": "octavia", "method": "POST", "status": 503, "agent": CALLER}
    with octavia.faults(failing), pytest.raises(CloudError):
        await worker.ensure(service_of(), octavia.nodes[:1])
    assert not octavia.balancers()
    lost = {"service": "octavia", "method": "POST", "status": 504, "after": True, "count": 1}
    with octavia.faults({**lost, "agent": CALLER}), pytest.raises(CloudError):
        await worker.ensure(service_of(), octavia.nodes[:1])
    full = {
        "service": "neutron",
        "method": "POST",
        "path": "/floatingips",
        "status": 409,
        "body": '{"NeutronError": {"type": "OverQuota", "message": "Quota exceeded"}}',
    }
    with octavia.faults({**full, "agent": CALLER}), pytest.raises(NoRoom):
        await worker.ensure(service_of(), octavia.nodes[:1])
    other = await Worker(octavia.config_with()).start()
    await other.ensure(service_of(), octavia.nodes[:1])
    assert len(octavia.balancers()) == len(octavia.floating_ips()) == 1


@pytest.mark.parametrize("made_at", ["2020-01-01", "2050-01-01"])
async def test_of_two_of_a_service_the_load_balancer_in_use_stays(
    octavia: BalancerLab, made_at: str
) -> None:
    """OS37: a controller was killed before Octavia answered, and its successor made a second."""
    first, successor = [await Worker(octavia.config_with()).start() for _ in range(2)]
    made = await first.ensure(service_of(), octavia.nodes[:1])
    used = octavia.balancer()
    other = {key: used[key] for key in ("name", "tags", "vip_subnet_id")}
    octavia.act_on_balancer("POST", "/loadbalancers", {"loadbalancer": other})
    octavia.date(made_at, all_but=used["id"])
    asked = service_of(ingress=made.ingress[0].ip)
    again = await successor.ensure(asked, octavia.nodes[:1])
    assert again.ingress == made.ingress
    octavia.settle()
    assert octavia.balancer()["id"] == used["id"]


@long
async def test_two_clusters_of_one_name_do_not_touch_each_others(octavia: BalancerLab) -> None:
    """OS75: the same Service in both; and what was made before the UID was known stays ours."""
    before, nodes, config = octavia.resources(), octavia.nodes[:1], octavia.config_with()
    unnamed, one, other = [
        await Worker(config, uid).start() for uid in ("", "cluster-1", "cluster-2")
    ]
    first, second = service_of(), service_of(uid="u-2")
    made = await unnamed.ensure(first, nodes)
    assert await one.ensure(first, nodes) == made
    await one.delete(first)
    made = await one.ensure(first, nodes)
    with pytest.raises(Refused, match="no mark of this Service"):
        await unnamed.ensure(second, nodes)
    beside = await other.ensure(second, nodes)
    assert beside.ingress != made.ingress
    for worker, asked in ((one, first), (other, second)):
        assert [found.service_uid for found in await worker.balancers.owned()] == [asked.uid]
        worker.forget_calls()
        await worker.ensure(asked, nodes)
        assert not worker.writes
    await other.delete(second)
    assert await one.balancers.get(first) == made
    await one.delete(first)
    assert octavia.resources() == before
    for worker in (unnamed, one, other):
        await worker.close()


@long
async def test_a_creation_that_no_one_waited_for_is_not_made_twice(octavia: BalancerLab) -> None:
    """OS38: Octavia goes on with it, and lists it only when it is done."""
    hasty = await Worker(octavia.config_with("[Metadata]", "request-timeout = 5s")).start()
    slow = {"service": "octavia", "method": "POST", "delay": 15.0, "count": 1, "agent": CALLER}
    with octavia.faults(slow), pytest.raises(CloudError, match="no answer"):
        await hasty.ensure(service_of(), octavia.nodes[:1])
    assert not octavia.balancers()
    await hasty.ensure(service_of(), octavia.nodes[:1])
    assert len(octavia.balancers()) == 1


async def test_what_octavia_fails_at_is_reported_and_recreated_only_when_no_one_uses_it(
    octavia: BalancerLab,
) -> None:
    """OS40, OS41, OS43, OS83."""
    worker = await Worker(octavia.config_with("lb-provider = noop_driver")).start()
    internal = {INTERNAL: "true"}  # its virtual IP has no port that a floating IP could lead to
    ensure, asked = worker.balancers.ensure, service_of("web", internal)
    for _ in range(2):
        with pytest.raises(RetryAfter):
            await ensure(asked, octavia.nodes[:1])
    first = octavia.balancer()["id"]
    octavia.play(first, "ERROR")
    used = service_of("web", internal, "203.0.113.1")
    with pytest.raises(CloudError, match="on-error"):
        await ensure(used, octavia.nodes[:1])
    with pytest.raises(CloudError, match="recreated"):
        await ensure(asked, octavia.nodes[:1])
    octavia.play(first, "DELETED")
    with pytest.raises(RetryAfter):
        await ensure(asked, octavia.nodes[:1])
    second = octavia.balancer()["id"]
    assert second != first
    octavia.play(second, "ACTIVE")
    assert (await worker.ensure(asked, octavia.nodes[:1])).ingress
    octavia.play(second, "PENDING_UPDATE")
    for work in (ensure, worker.balancers.update_nodes):
        with pytest.raises(RetryAfter):
            await work(asked, octavia.nodes[:2])
    with pytest.raises(RetryAfter):
        await worker.balancers.delete(asked)
    octavia.play(second, "ACTIVE")
    with pytest.raises(RetryAfter):
        await worker.balancers.delete(asked)
    octavia.play(second, "DELETED")
    await worker.delete(asked)


@long
async def test_many_services_share_what_they_ask_and_change(octavia: BalancerLab) -> None:
    """Five with two ports, monitors and groups on ten Nodes; a Node joins; all are deleted."""
    lines = ("manage-security-groups = true", "create-monitor = true")
    worker, nodes = await Worker(octavia.config_with(*lines)).start(), octavia.nodes
    services = [
        service_of(
            f"web-{index}",
            ports=[port(80, node_port=30100 + index), port(443, node_port=30200 + index)],
        )
        for index in range(5)
    ]
    before = octavia.resources()
    await asyncio.gather(*(worker.ensure(one, nodes[:9]) for one in services))
    assert len(worker.without_polls) <= 100
    worker.forget_calls()
    await asyncio.gather(*(worker.update(one, nodes) for one in services[:2]))
    assert len(worker.without_polls) <= 16
    assert [len(names) for names in octavia.members()].count(10) == 4
    worker.forget_calls()
    await asyncio.gather(*(worker.delete(one) for one in services))
    assert len(worker.without_polls) <= 50
    assert octavia.resources() == before
