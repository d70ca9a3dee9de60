"""Which instances are behind a balancer, and forwards on a bridge, which have one of them."""

from collections.abc import AsyncIterator, Iterator

import pytest

from ccm.cloud.testkit.harness import node, service
from ccm.errors import Denied
from ccm.model.objects import Json
from ccm.providers.incus.lb.load_balancers import IncusLoadBalancers
from tests.labs.incus.gateway import Gateway
from tests.labs.incus.lab import Lab
from tests.providers.incus.conftest import Started
from tests.providers.incus.test_incus_balancers import (
    ROOT,
    Balancers,
    balancers,
    clean,
    node_of,
    writes,
)
from tests.providers.incus.test_incus_incomplete import ABSENT

__all__ = ["balancers", "clean"]


async def test_an_instance_in_another_network_is_named(
    lab: Lab, gateway: Gateway, clean: None
) -> None:
    cloud = await Started(lab.config(f"unix://{gateway.socket}", "k8s", "bridged")).start()
    balancers = Balancers(lab, cloud)
    balancers.nodes["br-1"] = node_of(lab, "br-1", "bridged")
    made = await balancers.ensure(service(), "node-1", "br-1")
    assert made.warnings == ("instances br-1 are not in network ovn0",)
    balancers.answering(made.ingress[0].ip, "node-1")
    await cloud.close()


@pytest.fixture
def rival(lab: Lab) -> Iterator[Json]:
    """An instance of another project, in a network that only has the same name and subnet."""
    config = {"features.networks": "true", "features.images": "false"}
    subnet = {"ipv4.address": "10.99.0.1/24", "ipv4.nat": "true", "ipv6.address": "none"}
    nic = {"type": "nic", "network": "ovn0", "name": "eth0"}
    root = {"type": "disk", "path": "/", "pool": "default"}
    source = {"type": "image", "alias": lab.env["INCUS_IMAGE"], "project": "default"}
    instance: Json = {"name": "rival-1", "source": source, "devices": {"eth0": nic, "root": root}}
    lab.call("POST", "/projects", {"name": "rival", "config": config})
    try:
        network = {"name": "ovn0", "type": "ovn", "config": {**subnet, "network": "incusbr0"}}
        lab.call("POST", "/networks", network, "rival")
        instance["config"] = {"security.privileged": "true"}
        lab.call("POST", "/instances", instance, "rival")
        lab.call("PUT", "/instances/rival-1/state", {"action": "start"}, "rival")
        yield lab.instance("rival-1", "rival")
    finally:
        lab.remove("rival-1", project="rival")
        lab.delete("/networks/ovn0", "rival")
        lab.delete("/projects/rival", "default")


async def test_a_network_of_another_project_is_another_network(
    lab: Lab, rival: Json, clean: None
) -> None:
    """Its address behind our balancer would be that of whoever has it in ours."""
    cloud = await Started(lab.config("", "k8s", "rival", who="ADMIN")).start()
    balancers = Balancers(lab, cloud)
    balancers.nodes["rival-1"] = node_of(lab, "rival-1", "rival")
    made = await balancers.ensure(service(), "node-1", "rival-1")
    assert made.warnings == ("instances rival-1 are not in network ovn0",)
    (record,) = balancers.records().values()
    assert [one["name"] for one in record["backends"]] == ["node-1-30080"]


async def test_a_network_that_projects_share_is_one_network(lab: Lab, clean: None) -> None:
    """Instances of two projects may have one name, and no two backends may."""
    subnet = {"ipv4.address": "10.97.0.1/24", "ipv4.nat": "true", "ipv6.address": "none"}
    network = {"name": "ovn0", "type": "ovn", "config": {**subnet, "network": "incusbr0"}}
    source = {"type": "image", "alias": lab.env["INCUS_IMAGE"], "project": "default"}
    devices = {"eth0": {"type": "nic", "network": "ovn0", "name": "eth0"}}
    config = lab.config("", "bridged", who="EDGE", more="project = default")
    cloud = await Started(f"{config}\naddress-range = 192.0.2.200").start()
    balancers = Balancers(lab, cloud)
    lab.call("POST", "/networks", network, "default")
    try:
        body = {"name": "sh-1", "source": source, "devices": devices}
        lab.call("POST", "/instances", body, "bridged")
        lab.set_state(["sh-1"], "start", "bridged")
        balancers.nodes["sh-1"] = node_of(lab, "sh-1", "bridged")
        made = await balancers.ensure(service(), "sh-1")
        assert made.warnings == ()
        (record,) = lab.get(ROOT, "default", recursion=1)
        assert [one["name"] for one in record["backends"]] == ["bridged_sh-1-30080"]
        await balancers.part.delete(service())
    finally:
        await cloud.close()
        lab.remove("sh-1", project="bridged")
        lab.delete("/networks/ovn0", "default")


async def test_a_node_whose_instance_is_elsewhere_is_named(balancers: Balancers) -> None:
    """As on another remote than the balancers'."""
    balancers.nodes["far"] = node("far", ABSENT)
    made = await balancers.ensure(service(), "node-1", "far")
    assert made.warnings == ("nodes far have no instance of their own in lab",)


# Forwards.


@pytest.fixture
async def forwards(lab: Lab) -> AsyncIterator[Balancers]:
    config = lab.config("", "bridged", who="EDGE").replace("ovn0", "incusbr0")
    more = "\nproject = default\nmode = forward\naddress-range = 198.51.100.0/24"
    cloud = await Started(config + more).start()
    balancers = Balancers(lab, cloud)
    balancers.nodes = {name: node_of(lab, name, "bridged") for name in ("br-1", "br-2")}
    yield balancers
    await balancers.part.delete(service())
    lab.set_state(["br-1", "br-2"], "start", "bridged")
    await cloud.close()


async def test_a_forward_fails_over_to_another_node(lab: Lab, forwards: Balancers) -> None:
    """IN66."""
    (way,) = (await forwards.ensure(service(), "br-1", "br-2")).ingress
    (first,) = lab.answers(f"http://{way.ip}/", 12)
    (other,) = {"br-1", "br-2"} - {first}
    lab.set_state([first], "stop", "bridged")
    await forwards.update(service(), "br-1", "br-2")
    forwards.answering(way.ip, other)
    lab.set_state([first], "start", "bridged")
    await forwards.update(service(), "br-1", "br-2")
    forwards.answering(way.ip, other)
    assert writes(forwards.cloud) == ["CreateForward", "UpdateForward"]


async def test_an_address_that_a_guest_gave_itself_is_no_target(
    lab: Lab, forwards: Balancers
) -> None:
    """Whoever is root in a node spoils no Service by an odd address that comes first."""
    (own,) = (one["address"] for one in lab.addresses("br-1", "bridged") if one["family"] == "inet")
    inside = ("incus", "--", "exec", "br-1", "--project", "bridged", "--", "ip")
    for what, address in (("del", own), ("add", "10.7.0.1"), ("add", own)):
        lab.run(*inside, "addr", what, f"{address}/24", "dev", "eth0")
    lab.run(*inside, "route", "add", "default", "via", "10.88.0.1")
    try:
        (way,) = (await forwards.ensure(service(), "br-1")).ingress
        (record,) = lab.get("/networks/incusbr0/forwards", "default", recursion=1)
        assert {one["target_address"] for one in record["ports"]} == {own}
        forwards.answering(way.ip, "br-1")
    finally:
        lab.run(*inside, "addr", "del", "10.7.0.1/24", "dev", "eth0")


async def test_forwards_take_rights_on_the_project_of_the_bridge(lab: Lab) -> None:
    """IN67: `check` reads a load balancer."""
    config = lab.config("", "bridged").replace("ovn0", "incusbr0")
    more = "\nproject = default\nmode = forward\naddress-range = 198.51.100.0/24"
    cloud = await Started(config + more).start()
    assert cloud.load_balancers
    with pytest.raises(Denied):
        await IncusLoadBalancers.get(cloud.load_balancers, service())  # type: ignore[arg-type]
