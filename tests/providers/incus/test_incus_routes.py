"""Routes to pods on a real Incus: with packets, and with what others do to the same instances."""

import asyncio
import subprocess
from collections.abc import Iterator, Sequence
from itertools import count

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.harness import node
from ccm.errors import CloudError, Refused, RetryAfter
from ccm.model.cloud import Route
from ccm.model.objects import Json, Node
from ccm.providers.incus.routes import MARK
from tests.labs.incus.gateway import Gateway
from tests.labs.incus.lab import SCRIPT, Lab, until
from tests.providers.incus.conftest import Started
from tests.support.deadlines import within

POD, POD_CIDR, POD_CIDR6 = "10.244.7.5", "10.244.7.0/24", "fd00:244:7::/64"
NAMES = ("rt-1", "rt-2", "rt-3")
BRIDGED = ("br-7", "br-8")
REPLUG = "[Routes]\non-ovn = replug"


@pytest.fixture
def bridged(lab: Lab) -> Iterator[list[Json]]:
    """Two instances on the host's bridge."""
    yield lab.create(*BRIDGED, project="bridged")
    lab.remove(*BRIDGED, project="bridged")


@pytest.fixture
def on_ovn(lab: Lab) -> Iterator[list[Json]]:
    """Three instances in an OVN network."""
    yield lab.create(*NAMES)
    lab.remove(*NAMES)


def node_of(record: Json, *cidrs: str) -> Node:
    found = node(record["name"], f"incus://{record['project']}/{record['config']['volatile.uuid']}")
    found.raw["spec"]["podCIDRs"] = list(cidrs)
    return found


async def started(lab: Lab, gateway: Gateway, *projects: str, more: str = "") -> Started:
    config = lab.config(f"unix://{gateway.socket}", *projects, more=more)
    if "bridged" in projects:
        config = config.replace(f"network = {lab.network}", "")
    return await Started(config).start()


async def create(cloud: Started, to: Node, cidr: str = POD_CIDR) -> None:
    assert cloud.routes
    await invoke(cloud.routes.create, to, cidr)


async def listed(cloud: Started, *nodes: Node) -> Sequence[Route]:
    assert cloud.routes
    return await invoke(cloud.routes.list, nodes)


async def delete_all(cloud: Started, *nodes: Node) -> None:
    assert cloud.routes
    for route in await listed(cloud, *nodes):
        await invoke(cloud.routes.delete, route)


def nic(lab: Lab, record: Json) -> Json:
    """The first NIC as Incus has it now."""
    found: Json = lab.instance(record["name"], record["project"])["expanded_devices"]["eth0"]
    return found


def is_reached(lab: Lab, address: str) -> bool:
    """Whether a packet from the lab's host reaches a pod and its answer comes back."""
    command = [str(SCRIPT), "exec", lab.name, "--", "busybox", "ping", "-c1", "-W1", address]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def is_answered(lab: Lab, who: str, address: str) -> bool:
    """The same from another instance of an OVN network."""
    command = [str(SCRIPT), "incus", lab.name, "--", "exec", who, "--project", lab.project, "--"]
    ping = ["ping", "-c1", "-W1", address]
    return subprocess.run([*command, *ping], capture_output=True, check=False).returncode == 0


async def test_packets_reach_a_pod_through_a_route_on_a_bridge(
    lab: Lab, gateway: Gateway, bridged: list[Json]
) -> None:
    """IN56, IN62."""
    cloud = await started(lab, gateway, "bridged")
    one = bridged[0]
    lab.run("pod", one["name"], POD)
    proxy_arp = ("sysctl", "-qw", "net.ipv4.conf.eth0.proxy_arp=1")
    lab.run("exec", "--", "nsenter", "-t", str(one["state"]["pid"]), "-n", *proxy_arp)
    before = nic(lab, one)
    assert not is_reached(lab, POD)
    await create(cloud, node_of(one))
    assert until(lambda: is_reached(lab, POD), "the pod answers")
    assert nic(lab, one) == {**before, "ipv4.routes": POD_CIDR}
    now = lab.instance(one["name"], "bridged")
    assert now["config"]["volatile.eth0.hwaddr"] == one["config"]["volatile.eth0.hwaddr"]
    (route,) = await listed(cloud, node_of(one))
    assert (route.cidr, route.node, route.is_marked) == (POD_CIDR, "br-7", True)
    await delete_all(cloud, node_of(one))
    assert not is_reached(lab, POD)
    assert nic(lab, one) == before
    assert MARK not in lab.instance(one["name"], "bridged")["config"]
    await cloud.close()


async def test_packets_reach_a_pod_through_a_route_on_ovn(
    lab: Lab, gateway: Gateway, on_ovn: list[Json]
) -> None:
    """IN58: not while it runs; the route leads there from the next start."""
    cloud, one = await started(lab, gateway), on_ovn[0]
    with pytest.raises(Refused, match=r"rt-1 runs.*stop it once"):
        await create(cloud, node_of(one))
    assert "ipv4.routes" not in nic(lab, one)
    lab.set_state(["rt-1"], "stop")
    await create(cloud, node_of(one))
    lab.set_state(["rt-1"], "start")
    lab.run("pod", "rt-1", POD)
    assert until(lambda: is_answered(lab, "rt-2", POD), "the pod answers")
    with pytest.raises(Refused, match="runs"):
        await delete_all(cloud, node_of(one))
    lab.set_state(["rt-1"], "stop")
    await delete_all(cloud, node_of(one))
    lab.set_state(["rt-1"], "start")
    lab.run("pod", "rt-1", POD)
    assert not is_answered(lab, "rt-2", POD)
    await cloud.close()


async def test_running_instances_on_ovn_are_replugged_one_after_the_other(
    lab: Lab, gateway: Gateway, on_ovn: list[Json]
) -> None:
    """IN59."""
    cloud = await started(lab, gateway, more=REPLUG)
    waited = 0
    for number, one in enumerate(on_ovn):
        waited += await replug(cloud, one, f"10.244.{number}.0/24")
        for earlier in on_ovn[:number]:
            there = {address["family"] for address in lab.addresses(earlier["name"])}
            assert there == {"inet", "inet6"}, "the one before was back first"
    assert waited, "no two were without their addresses at once"
    assert len(await listed(cloud, *map(node_of, on_ovn))) == 3
    await cloud.close()


async def replug(cloud: Started, record: Json, cidr: str = POD_CIDR) -> int:
    """How often a route had to wait until it was made."""
    async with within(60):
        for waited in count():
            try:
                await create(cloud, node_of(record), cidr)
                return waited
            except RetryAfter:
                await asyncio.sleep(0.2)
    return 0


async def test_a_replug_by_a_worker_that_was_killed_is_waited_for(
    lab: Lab, gateway: Gateway, on_ovn: list[Json]
) -> None:
    """IN59: no worker knows what the one before it did, but from Incus."""
    killed = await started(lab, gateway, more=REPLUG)
    await create(killed, node_of(on_ovn[0]))
    successor = await started(lab, gateway, more=REPLUG)
    assert await replug(successor, on_ovn[1], "10.244.8.0/24")
    assert lab.addresses("rt-1"), "the one before was back first"
    await killed.close()
    await successor.close()


async def test_an_address_that_a_guest_never_had_is_not_waited_for(
    lab: Lab, gateway: Gateway, on_ovn: list[Json]
) -> None:
    """OVN gives each NIC an IPv6 address, whether its guest takes it or not."""
    guest = ("exec", "--", "nsenter", "-t", str(on_ovn[0]["state"]["pid"]), "-n", "sysctl", "-qw")
    lab.run(*guest, *(f"net.ipv6.conf.{one}.disable_ipv6=1" for one in ("all", "default")))
    cloud = await started(lab, gateway, more=REPLUG)
    await replug(cloud, on_ovn[0])
    await replug(cloud, on_ovn[1], "10.244.8.0/24")
    assert len(lab.addresses("rt-1")) == 1
    await cloud.close()


@pytest.mark.parametrize("project", ["bridged", "k8s"])
async def test_a_network_is_freed_before_it_is_routed_elsewhere(
    lab: Lab, gateway: Gateway, project: str
) -> None:
    """IN57, IN60."""
    one, other = lab.create(*NAMES[:2], project=project)
    try:
        lab.set_state(NAMES[:2], "stop", project)
        cloud = await started(lab, gateway, project)
        await create(cloud, node_of(one))
        with pytest.raises(Refused, match=r"rt-1 has the route for 10\.244\.7\.0/24"):
            await create(cloud, node_of(other))
        assert "ipv4.routes" not in nic(lab, other)
        await delete_all(cloud, node_of(one))
        await create(cloud, node_of(other))
        assert [route.node for route in await listed(cloud, node_of(other))] == ["rt-2"]
        await cloud.close()
    finally:
        lab.remove(*NAMES, project=project)


async def test_routes_of_others_stay(lab: Lab, gateway: Gateway, bridged: list[Json]) -> None:
    """IN61, IN62: entries by hand, other keys of the NIC, and another cluster's marks."""
    one, theirs = bridged[0], "10.9.0.0/24, 10.9.1.0/24"
    device = {**nic(lab, one), "ipv4.routes": theirs, "security.mac_filtering": "true"}
    body = {"devices": {"eth0": device}, "config": {MARK: "another:10.9.1.0/24", "user.x": "y"}}
    lab.call("PATCH", "/instances/br-7", body, "bridged")
    cloud = await started(lab, gateway, "bridged")
    assert not await listed(cloud, node_of(one, "10.9.1.0/24")), "it is another cluster's"
    await create(cloud, node_of(one))
    assert nic(lab, one)["ipv4.routes"] == "10.9.0.0/24,10.9.1.0/24,10.244.7.0/24"
    await delete_all(cloud, node_of(one))
    assert nic(lab, one) == {**device, "ipv4.routes": theirs.replace(" ", "")}
    config = lab.instance("br-7", "bridged")["config"]
    assert (config[MARK], config["user.x"]) == ("another:10.9.1.0/24", "y")
    await cloud.close()


async def test_a_route_that_was_made_with_the_instance_is_the_nodes(
    lab: Lab, gateway: Gateway, bridged: list[Json]
) -> None:
    one = bridged[0]
    device = {**nic(lab, one), "ipv4.routes": POD_CIDR}
    lab.call("PATCH", "/instances/br-7", {"devices": {"eth0": device}}, "bridged")
    cloud = await started(lab, gateway, "bridged")
    assert not await listed(cloud, node_of(one)), "of no concern while it is no pod network"
    (route,) = await listed(cloud, node_of(one, POD_CIDR))
    assert (route.node, route.is_marked) == ("br-7", False)
    await delete_all(cloud, node_of(one, POD_CIDR))
    assert nic(lab, one) == device, "whoever made it takes it away"
    await cloud.close()


async def test_an_edit_at_the_same_time_survives(
    lab: Lab, gateway: Gateway, bridged: list[Json]
) -> None:
    """IN63: someone changes the NIC between our read and our write."""
    cloud, one = await started(lab, gateway, "bridged"), bridged[0]
    edited = {**nic(lab, one), "ipv4.routes": "10.9.0.0/24"}

    async def edit(operation: str) -> None:
        if operation == "UpdateInstance":
            lab.call("PATCH", "/instances/br-7", {"devices": {"eth0": edited}}, "bridged")

    call = cloud.gate.call

    async def edit_first(operation: str, *args, is_write: bool):  # type: ignore[no-untyped-def]
        await edit(operation)
        return await call(operation, *args, is_write=is_write)

    cloud.gate.call = edit_first  # type: ignore[assignment,method-assign]
    with pytest.raises(RetryAfter, match="412"):
        await create(cloud, node_of(one))
    assert nic(lab, one) == edited
    cloud.gate.call = call  # type: ignore[method-assign]
    await create(cloud, node_of(one))
    assert nic(lab, one) == {**edited, "ipv4.routes": f"10.9.0.0/24,{POD_CIDR}"}
    await cloud.close()


async def test_edits_of_someone_who_never_rests_survive(
    lab: Lab, gateway: Gateway, bridged: list[Json]
) -> None:
    """IN63: and so do ours, whatever is between two of our requests."""
    cloud, one = await started(lab, gateway, "bridged"), bridged[0]
    edits = {f"user.edit-{number}": "x" for number in range(60)}

    async def edit_all() -> None:
        for key, value in edits.items():
            await asyncio.to_thread(
                lab.call, "PATCH", "/instances/br-7", {"config": {key: value}}, "bridged"
            )

    editing = asyncio.create_task(edit_all())
    for number in range(8):
        await replug(cloud, one, f"10.244.{number}.0/24")
    await editing
    now = lab.instance("br-7", "bridged")
    assert edits.items() <= now["config"].items()
    assert nic(lab, one)["ipv4.routes"].count(",") == 7
    assert now["config"][MARK].count(",") == 7
    await cloud.close()


async def test_both_ip_families_are_routed(lab: Lab, gateway: Gateway, bridged: list[Json]) -> None:
    """IN64: the second finds the first and keeps it."""
    cloud, one = await started(lab, gateway, "bridged"), bridged[0]
    for cidr in (POD_CIDR, POD_CIDR6):
        await create(cloud, node_of(one), cidr)
    there = nic(lab, one)
    assert (there["ipv4.routes"], there["ipv6.routes"]) == (POD_CIDR, POD_CIDR6)
    assert {route.cidr for route in await listed(cloud, node_of(one))} == {POD_CIDR, POD_CIDR6}
    calls = len(gateway.calls)
    await create(cloud, node_of(one), "fd00:0244:0007:0::/64")
    assert {call.method for call in gateway.calls[calls:]} == {"GET"}, "the very same is there"
    await cloud.close()


async def test_what_cannot_be_read_changes_no_route(
    lab: Lab, gateway: Gateway, bridged: list[Json]
) -> None:
    cloud, one = await started(lab, gateway, "bridged"), bridged[0]
    lists: list[Json] = [{"status": 500}, {"status": 200, "body": {"type": "sync", "metadata": []}}]
    for answer in lists:
        gateway.set_rules(
            {"path": r"/instances\?", **answer}, {"path": "/projects/", "status": 403}
        )
        with pytest.raises(CloudError):
            await listed(cloud, node_of(one))
        with pytest.raises(CloudError):
            await create(cloud, node_of(one))
    gateway.set_rules()
    assert "ipv4.routes" not in nic(lab, one)
    await cloud.close()
