"""Nodes and their machines: found by VMID and UUID, with few requests."""

import base64
import time

import pytest

from ccm.model.cloud import AddressType, Answer, Instance, PowerState, Unknown
from tests.providers.proxmox.conftest import Started, node_with
from tests.providers.proxmox.served import LIST, Served, config_of
from tests.support.nodes import TAINT

UUID = "a1b2c3d4-0000-4000-8000-00000000000a"
OTHER_UUID = "a1b2c3d4-0000-4000-8000-00000000000b"


def numbered_uuid(number: int) -> str:
    return f"a1b2c3d4-0000-4000-8000-{number:012d}"


def why(answer: Answer) -> str:
    assert isinstance(answer, Unknown), answer
    return answer.why


async def test_two_clusters_are_two_regions(pve: Served, other: Served) -> None:
    """PX1: also when both have a machine of one number."""
    pve.add(100, "node-1", UUID)
    other.add(100, "node-2", OTHER_UUID, node="host-b")
    cloud = await Started(config_of(pve.section(), other.section("two"))).start()
    nodes = node_with("node-1", UUID), node_with("node-2", OTHER_UUID)
    one, two = (await cloud.describe(*nodes)).values()
    assert isinstance(one, Instance)
    assert isinstance(two, Instance)
    assert (one.provider_id, one.region, one.zone) == ("proxmox://one/100", "one", "pve1")
    assert (two.provider_id, two.region, two.zone) == ("proxmox://two/100", "two", "host-b")
    assert two.labels == {
        "topology.proxmox.sinextra.dev/region": "two",
        "topology.proxmox.sinextra.dev/zone": "host-b",
    }
    assert one.type == "4VCPU-8GB"
    by_id = node_with("node-2", OTHER_UUID, two.provider_id)
    other.requests.clear()
    pve.requests.clear()
    assert (await cloud.known(by_id)).region == "two"
    assert not pve.requests, "the other cluster is not asked"


@pytest.mark.parametrize("guests", [50, 2000])
async def test_requests_follow_the_nodes(pve: Served, cloud: Started, guests: int) -> None:
    """PX2, PX32: a list a round, and each Node's configuration once."""
    count = 50 if guests == 50 else 20
    for number in range(guests):
        pve.add(1000 + number, f"node-{number}", numbered_uuid(number))
    nodes = [node_with(f"node-{n}", numbered_uuid(n)) for n in range(count)]
    for _ in range(3):
        answers = await cloud.describe(*nodes)
        assert all(isinstance(one, Instance) for one in answers.values())
    assert len(pve.paths(LIST)) == 3
    assert len(pve.paths("/config")) == count
    assert len(pve.requests) == 3 + count


async def test_a_number_that_was_given_again_is_another_machine(
    pve: Served, cloud: Started
) -> None:
    """PX3: with no list in between, too; it is not ours, and nobody is gone for that."""
    pve.add(100, "node-1", UUID)
    asked = node_with("node-1", UUID, "proxmox://one/100")
    await cloud.known(asked)
    pve.remove(100)
    foreign = pve.add(100, "node-1", OTHER_UUID)
    foreign.started_at += 60
    assert "has not the Node's UUID" in await cloud.why(asked)


OTHERS = {"smbios1": f"uuid={OTHER_UUID}"}


IDS = "", "proxmox://one/100", f"proxmox://{UUID}"


@pytest.mark.parametrize("provider_id", IDS[:2])
@pytest.mark.parametrize("odd", [{}, OTHERS, {**OTHERS, "name": "node-2"}])
async def test_a_configuration_that_is_not_the_machines_is_not_kept(
    pve: Served, cloud: Started, odd: dict[str, str], provider_id: str
) -> None:
    """An answer may lack the UUID, or be another machine's: that counted until a restart."""
    machine = pve.add(100, "node-1", config=odd)
    asked = node_with("node-1", UUID, provider_id)
    await cloud.describe_one(asked)
    machine.config.clear()
    machine.config["smbios1"] = f"uuid={UUID}"
    assert (await cloud.known(asked)).system_uuid == UUID


@pytest.mark.parametrize("provider_id", IDS)
async def test_one_configuration_with_the_uuid_of_another_keeps_neither_out(
    pve: Served, cloud: Started, provider_id: str
) -> None:
    """Two machines were each one's until the process or one of the machines ended."""
    pve.add(100, "node-1", UUID)
    other = pve.add(101, "node-2", UUID)
    own, others = node_with("node-1", UUID, provider_id), node_with("node-2", OTHER_UUID)
    await cloud.describe_one(others)
    other.config["smbios1"] = f"uuid={OTHER_UUID}"
    await cloud.describe_one(own)
    assert (await cloud.known(own)).system_uuid == UUID
    assert (await cloud.known(others)).system_uuid == OTHER_UUID


@pytest.mark.parametrize("provider_id", ["", "proxmox://one/100"])
async def test_a_machine_that_is_made_again_at_once_is_another(
    pve: Served, cloud: Started, monkeypatch: pytest.MonkeyPatch, provider_id: str
) -> None:
    """PX3: of the same number and name, and on for as long as the one before was when it joined."""
    pve.add(100, "node-1", UUID).started_at -= 45
    await cloud.known(node_with("node-1", UUID))
    in_a_while = time.monotonic() + 300
    monkeypatch.setattr("ccm.providers.proxmox.inventory.monotonic", lambda: in_a_while)
    pve.remove(100)
    pve.add(100, "node-1", OTHER_UUID).started_at -= 60
    asked = node_with("node-1", OTHER_UUID, provider_id)
    assert (await cloud.known(asked)).system_uuid == OTHER_UUID


async def test_a_machine_that_is_renamed_stays_its_nodes(pve: Served, cloud: Started) -> None:
    """PX4."""
    machine = pve.add(100, "node-1", UUID)
    asked = node_with("node-1", UUID, "proxmox://one/100")
    there = await cloud.known(asked)
    machine.name = machine.config["name"] = "pet"
    assert await cloud.known(asked) == there


@pytest.mark.parametrize(
    "smbios",
    [
        f"uuid={UUID.upper()}",
        f"base64=1,sku={base64.b64encode(b'm1.large').decode()},uuid={UUID}",
        f"base64=1,uuid={base64.b64encode(UUID.encode()).decode()}",
    ],
)
async def test_a_uuid_has_many_forms(pve: Served, cloud: Started, smbios: str) -> None:
    """PX5; the SKU is the type."""
    pve.add(100, "node-1", config={"smbios1": smbios})
    answer = await cloud.known(node_with("node-1", UUID.upper(), "proxmox://one/100"))
    assert answer.type == ("m1.large" if "sku" in smbios else "4VCPU-8GB")


async def test_a_name_counts_whole(pve: Served, cloud: Started) -> None:
    """PX6: without a UUID, too; a domain may follow."""
    pve.add(110, "node-10")
    assert "no virtual machine" in await cloud.why(node_with("node-1"))
    pve.add(101, "node-1.example.com")
    assert (await cloud.known(node_with("node-1"))).provider_id == "proxmox://one/101"


@pytest.mark.parametrize("provider_id", ["rke2://node-1", "talos://a", "k3s://node-1"])
async def test_other_clouds_nodes_are_left_alone(
    pve: Served, cloud: Started, provider_id: str
) -> None:
    """PX7: nothing is asked."""
    pve.add(100, "node-1", UUID)
    answer = await cloud.describe_one(node_with("node-1", UUID, provider_id))
    assert "of another cloud" in why(answer)
    assert not pve.requests


async def test_ids_of_cluster_api_are_served_and_made(pve: Served) -> None:
    """PX8: found by UUID, whatever the name."""
    pve.add(100, "node-1", UUID)
    pve.add(101, "pet", OTHER_UUID)
    config = config_of(pve.section()).replace(
        "clusters:", "features: {provider: capmox}\nclusters:"
    )
    cloud = await Started(config).start()
    made = await cloud.known(node_with("node-1", UUID.upper()))
    assert made.provider_id == f"proxmox://{UUID}"
    provider_id = f"proxmox://{OTHER_UUID.upper()}"
    pet = await cloud.known(node_with("node-2", OTHER_UUID, provider_id))
    assert pet.provider_id == provider_id, "a Node keeps its ID"
    assert cloud.instances
    assert len(pve.paths("/config")) == 2


async def test_power_follows_the_machine(pve: Served, cloud: Started) -> None:
    """PX9, PX10: a paused one comes back as it was."""
    machine = pve.add(100, "node-1", UUID)
    asked = node_with("node-1", UUID, "proxmox://one/100")
    machine.qmpstatus = "paused"
    assert (await cloud.known(asked)).power is PowerState.RUNNING
    machine.status, machine.lock = "stopped", "suspended"
    assert (await cloud.known(asked)).power is PowerState.STOPPED
    machine.status, machine.lock = "running", None
    assert (await cloud.known(asked)).power is PowerState.RUNNING


async def test_a_host_that_is_away_leaves_its_nodes_as_they_are(
    pve: Served, cloud: Started
) -> None:
    """PX11: known or not."""
    pve.add(100, "node-1", UUID)
    pve.add(101, "node-2", OTHER_UUID)
    asked = node_with("node-1", UUID, "proxmox://one/100")
    await cloud.known(asked)
    pve.set_node_offline("pve1")
    assert (await cloud.known(asked)).power is PowerState.UNKNOWN
    new = node_with("node-2", OTHER_UUID, "proxmox://one/101")
    assert "595" in await cloud.why(new)


async def test_a_zone_follows_a_migration(pve: Served, cloud: Started) -> None:
    """PX19, PX15: also when the list is older than the move."""
    machine = pve.add(100, "node-1", UUID)
    asked = node_with("node-1", UUID, "proxmox://one/100")
    assert (await cloud.known(asked)).zone == "pve1"
    pve.add_node("pve2")
    machine.node = "pve2"
    assert (await cloud.known(asked)).zone == "pve2"
    fresh = await Started(cloud.text).start()
    lists = 0

    async def move(request: object) -> object:
        nonlocal lists
        lists += 1
        answer = await type(pve)._resources(pve, request)
        machine.node = "pve1"
        return answer

    pve.on_list = move
    assert (await fresh.known(asked)).zone == "pve1"
    assert lists == 2


async def test_templates_and_containers_are_no_nodes(pve: Served, cloud: Started) -> None:
    """PX24, PX25."""
    pve.add(900, "node-1", UUID, template=True, status="stopped")
    pve.add_ct(200, "node-2", status="running")
    asked = node_with("node-1", UUID), node_with("node-2", OTHER_UUID)
    template, container = (await cloud.describe(*asked)).values()
    assert "no virtual machine" in why(template)
    assert "is a container" in why(container)
    by_id = node_with("node-2", OTHER_UUID, "proxmox://one/200")
    assert "is a container" in await cloud.why(by_id)
    pve.add(100, "node-1", UUID)
    assert (await cloud.known(asked[0])).provider_id == "proxmox://one/100"


async def test_a_copy_with_the_uuid_is_reported(pve: Served, cloud: Started) -> None:
    """PX26: by name, and by UUID alone."""
    pve.add(100, "node-1", UUID)
    pve.add(101, "node-1", UUID)
    reported = "several machines are node node-1: 100 of one, 101 of one"
    assert await cloud.why(node_with("node-1", UUID)) == reported
    assert "several machines" in await cloud.why(node_with("other", UUID))
    assert "several" in await cloud.why(node_with("other", UUID, f"proxmox://{UUID}"))


@pytest.mark.parametrize("provider_id", ["", f"proxmox://{UUID}"])
async def test_a_copy_with_the_nodes_name_is_not_taken_for_a_renamed_machine(
    pve: Served, cloud: Started, provider_id: str
) -> None:
    """PX4, PX26: whoever may make a machine may give it any name and UUID."""
    machine = pve.add(100, "node-1", UUID)
    asked = node_with("node-1", UUID, provider_id)
    await cloud.known(asked)
    machine.name = machine.config["name"] = "renamed"
    await cloud.known(asked)
    pve.add(101, "node-1", UUID)
    reported = await cloud.why(asked)
    assert reported == "several machines are node node-1: 100 of one, 101 of one"


async def test_too_many_are_not_searched(pve: Served, cloud: Started) -> None:
    for number in range(201):
        pve.add(1000 + number, f"guest-{number}", numbered_uuid(number))
    reported = await cloud.why(node_with("node-1", UUID))
    assert "201 are too many" in reported
    assert not pve.paths("/config")


async def test_an_old_id_has_no_region(pve: Served, other: Served, cloud: Started) -> None:
    pve.add(100, "node-1", UUID)
    asked = node_with("node-1", UUID, "proxmox:///100")
    assert (await cloud.known(asked)).provider_id == "proxmox:///100"
    two = await Started(config_of(pve.section(), other.section("two"))).start()
    assert "in no cluster" in await two.why(asked)


@pytest.mark.parametrize("written", ["proxmox:///100", f"proxmox://{UUID}", ""])
async def test_a_machine_says_both_of_its_ids(pve: Served, cloud: Started, written: str) -> None:
    """A second Node that writes the other one is on the same machine; a new one is looked at."""
    pve.add(100, "node-1", UUID)
    asked = node_with("node-1", "" if written else UUID, written)
    asked.raw["spec"]["taints"] = [TAINT]
    answer = await cloud.known(asked)
    assert answer.aliases == ("proxmox://one/100", f"proxmox://{UUID}")


async def test_a_machine_has_one_id(cloud: Started) -> None:
    machine_of = cloud.instances.machine_of  # type: ignore[union-attr]
    assert machine_of("proxmox:///100") == machine_of("proxmox://one/100") == "proxmox://one/100"
    assert machine_of(f"proxmox://{UUID.upper()}") == f"proxmox://{UUID}"
    assert machine_of("odd") == ""


async def test_the_kubelets_address_is_enough(pve: Served, cloud: Started) -> None:
    """PX30: and there are no balancers."""
    pve.add(100, "node-1", UUID)
    answer = await cloud.known(node_with("node-1", UUID, ip="10.0.0.5,fd00::5"))
    kinds = [(one.type, one.address) for one in answer.addresses]
    internal = AddressType.INTERNAL_IP
    own = [(internal, "10.0.0.5"), (internal, "fd00::5")]
    assert kinds == [*own, (AddressType.HOSTNAME, "node-1")]
    assert (await cloud.known(node_with("node-1", UUID))).addresses == ()
    assert [cloud.load_balancers, cloud.routes, cloud.volumes] == [None] * 3
