"""What an answer may have any number of: each takes its time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from ipaddress import ip_network
from itertools import islice
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyVmomi import vim

from ccm.cloud.lookup import LONGEST_TURN, MAX_PARTS
from ccm.cloud.testkit.harness import node
from ccm.errors import CloudError, Refused
from ccm.model.cloud import Gone, Instance, Unknown
from ccm.model.objects import Json
from ccm.providers.azure.machines import Machine
from ccm.providers.digitalocean.api import Listed
from ccm.providers.digitalocean.config import DigitalOceanConfig
from ccm.providers.digitalocean.droplets import Droplets, read_droplet
from ccm.providers.digitalocean.ids import Cluster
from ccm.providers.digitalocean.lb.load_balancers import DigitalOceanLoadBalancers
from ccm.providers.gce.ids import InstanceRef
from ccm.providers.gce.instances import GceInstances, read_machine
from ccm.providers.incus.config import RouteSection
from ccm.providers.incus.inventory import (
    MAX_ADDRESSES,
    MAX_SHOWN,
    InstanceList,
    ListedInstance,
)
from ccm.providers.incus.lb.addresses import networks_in as pools_in
from ccm.providers.incus.routes import MARK, MAX_TEXT, IncusRoutes
from ccm.providers.openstack.config import NetworkingSection
from ccm.providers.openstack.instances import read_server
from ccm.providers.openstack.router import MAX_NETWORKS, networks_in
from ccm.providers.proxmox.inventory import Identity, ListedMachine, MachineList, read_list
from ccm.providers.proxmox.inventory import Inventory as ProxmoxInventory
from ccm.providers.proxmox.inventory import read_machine as read_listed
from ccm.providers.proxmox.search import Search as ProxmoxSearch
from ccm.providers.vsphere.addresses import usable_addresses
from ccm.providers.vsphere.inventory import MOST_PLACES, InventoryReader, Nic
from ccm.providers.vsphere.inventory import Machine as VsphereMachine
from ccm.providers.vsphere.search import Search

UUID = "569e87ab-cb87-47b3-b02d-5e08996383{:02x}"
ADDRESSES = [f"10.{at >> 8}.{at & 255}.1" for at in range(2 * MAX_PARTS)]
MANY = 40 * MAX_PARTS
LAST = "10.200.0.0/24"
ANY: Any = SimpleNamespace()


def droplet_addresses() -> int:
    listed = [{"type": "public", "ip_address": address} for address in ADDRESSES]
    found = read_droplet({"id": 1, "name": "a", "networks": {"v4": listed}})
    assert found
    return len(found.public)


def google_addresses() -> int:
    configs = [{"natIP": address} for address in ADDRESSES]
    interfaces = [{"accessConfigs": configs}] * len(ADDRESSES)
    found = read_machine(InstanceRef("p", "z", "a"), {"networkInterfaces": interfaces})
    return len(found.addresses)


def nova_addresses() -> int:
    listed = [{"addr": address} for address in ADDRESSES]
    server = {"id": UUID.format(0), "status": "ACTIVE", "addresses": {"own": listed}}
    found = read_server(server, NetworkingSection(), "")
    assert isinstance(found, Instance)
    return len(found.addresses)


def azure_addresses() -> int:
    configurations = [{"properties": {"privateIPAddress": address}} for address in ADDRESSES]
    interface = {"id": "/i", "properties": {"ipConfigurations": configurations}}
    profile = {"networkInterfaces": [{"id": "/i"}] * len(ADDRESSES)}
    machine = Machine({"properties": {"networkProfile": profile}}, None, {"/i": interface})
    return len(machine.configurations)


def azure_cards() -> int:
    listed: list[Json] = [{"id": f"{at + 1}"} for at in range(len(ADDRESSES))]
    listed[-1]["properties"] = {"primary": True}
    profile = {"networkProfile": {"networkInterfaces": listed}}
    return int(Machine({"properties": profile}, None, {}).interface_id)


def proxmox_tags() -> int:
    raw = {"vmid": 1, "type": "qemu", "node": "a", "tags": "tag;" * len(ADDRESSES)}
    found = read_listed(raw)
    assert found
    return len(found.tags) - 1


def incus_addresses() -> int:
    """Root in the guest gives the MAC of its NIC to any number of interfaces."""
    numbers, mac = range(2 * MAX_SHOWN // MAX_ADDRESSES), "10:66:6a:00:00:01"
    interfaces = {
        f"d{at}": {
            "hwaddr": mac,
            "addresses": [
                {"family": "inet", "scope": "global", "address": f"10.{at >> 8}.{at & 255}.{host}"}
                for host in range(MAX_ADDRESSES)
            ],
        }
        for at in numbers
    }
    devices = {"eth0": {"type": "nic", "network": "ovn0", "hwaddr": mac}}
    record: Json = {"expanded_devices": devices, "state": {"network": interfaces}}
    found = ListedInstance(ANY, "p", record).guest_addresses("ovn0")
    return len(found) * MAX_PARTS // MAX_SHOWN


def vsphere_cards() -> int:
    """Each of them is a bridge in the guest, and few addresses are usable."""
    bridge = SimpleNamespace(network="", ipAddress=["fe80::1"], deviceConfigId=-1)
    machine = VsphereMachine("vm-1", "a", "", {"guest.net": [bridge] * len(ADDRESSES)})
    return len(machine.nics)


def vsphere_addresses() -> int:
    looked_at = iter(range(len(ADDRESSES)))
    addresses: Any = ("fe80::1" for _ in looked_at)
    usable_addresses([Nic("", addresses, 4000), Nic("", ("10.0.0.1",), 4001)])
    return next(looked_at, len(ADDRESSES))


def incus_addresses_of_one_card() -> int:
    shown = [{"family": "inet", "scope": "global", "address": address} for address in ADDRESSES]
    state = {"network": {"eth0": {"hwaddr": "10:66:6a:00:00:01", "addresses": shown}}}
    devices = {"eth0": {"type": "nic", "network": "ovn0", "hwaddr": "10:66:6a:00:00:01"}}
    record: Json = {"expanded_devices": devices, "state": state}
    return len(ListedInstance(ANY, "p", record).guest_addresses("ovn0"))


def incus_addresses_of_ovn() -> int:
    config = {"volatile.eth0.last_state.ip_addresses": ",".join(ADDRESSES)}
    devices = {"eth0": {"type": "nic", "network": "ovn0"}}
    listed = ListedInstance(ANY, "p", {"config": config, "expanded_devices": devices})
    return len(listed.given_to(listed.nics("ovn0")[0]))


def incus_pools() -> int:
    return len(list(pools_in(",".join(f"{address}/32" for address in ADDRESSES))))


def neutron_networks() -> int:
    subnets = ip_network("10.0.0.0/8").subnets(new_prefix=28)
    cidrs = [str(network) for network in islice(subnets, 2 * MAX_NETWORKS)]
    return len(networks_in([{"addresses": cidrs}])) * MAX_PARTS // MAX_NETWORKS


@pytest.mark.parametrize(
    "read",
    [
        droplet_addresses,
        google_addresses,
        nova_addresses,
        azure_addresses,
        azure_cards,
        proxmox_tags,
        neutron_networks,
        incus_addresses,
        incus_addresses_of_one_card,
        incus_addresses_of_ovn,
        incus_pools,
        vsphere_cards,
        vsphere_addresses,
    ],
)
def test_of_what_a_record_has_without_number_some_is_looked_at(read: Callable[[], int]) -> None:
    """A million addresses of one machine ended the worker that read them."""
    assert 0 < read() <= MAX_PARTS


async def droplets() -> None:
    async def listed(*_: object) -> Listed:
        return Listed({at: {"id": at, "name": f"a{at}"} for at in range(MANY)})

    api: Any = SimpleNamespace(list=listed)
    assert len((await Droplets(api, "").list()).records) == MANY


async def google_instances() -> None:
    async def place() -> Any:
        return SimpleNamespace(project="p")

    async def aggregated(_: str) -> Any:
        records = [{"name": f"a{at}"} for at in range(MANY)]
        return SimpleNamespace(records={"zones/z": records}, failures={})

    api: Any = SimpleNamespace(place=place, aggregated=aggregated)
    assert len((await GceInstances(api, "").read([])).records) == MANY


async def proxmox_machines() -> None:
    raw = [{"vmid": at + 1, "type": "qemu", "node": "a"} for at in range(MANY)]
    assert len((await read_list(raw)).records) == MANY


def incus_marked(count: int) -> IncusRoutes:
    """Another cluster may write them to its own instances, in a project that it shares with us."""
    subnets = ip_network("10.0.0.0/8").subnets(new_prefix=24)
    cidrs = [str(network) for network in islice(subnets, 4_000)]
    marks, eth0 = ",".join(f"b:{cidr}" for cidr in cidrs), {"type": "nic", "network": "ovn0"}
    assert len(marks) < MAX_TEXT
    listed = InstanceList()
    for at in range(count):
        config = {"volatile.uuid": UUID.format(at), MARK: marks}
        routed = cidrs if at < count - 1 else [*cidrs, LAST]
        devices = {"eth0": {**eth0, "ipv4.routes": ",".join(routed)}}
        record: Json = {"name": f"a{at}", "config": config, "expanded_devices": devices}
        listed.add(ListedInstance(ANY, "p", record))

    async def read(recursion: int) -> InstanceList:
        return listed

    inventory: Any = SimpleNamespace(read=read)
    return IncusRoutes(inventory, "ovn0", RouteSection(), "a")


async def incus_routes() -> None:
    assert not await incus_marked(20).list([])


async def incus_new_route() -> None:
    new = node("a0", f"incus://p/{UUID.format(0)}")
    with pytest.raises(Refused, match="has the route"):
        await incus_marked(50).create(new, LAST)


async def vsphere_machines() -> None:
    """Each of them deep in folders, and a Node that has the name of none."""

    def read(kind: Any, moid: str, **properties: str) -> Any:
        listed = [SimpleNamespace(name=key, val=value) for key, value in properties.items()]
        return SimpleNamespace(obj=kind(moid, None), propSet=listed, missingSet=[])

    folders = [read(vim.Folder, f"f-{at}", parent=f"f-{at + 1}") for at in range(MOST_PLACES)]
    machines = [read(vim.VirtualMachine, f"vm-{at}", name="a", parent="f-0") for at in range(MANY)]
    api: Any = SimpleNamespace(name="lab", vcenter=SimpleNamespace(datacenters=()))
    inventory = await InventoryReader(api)._understood([*folders, *machines])
    assert len(inventory.machines) == MANY
    assert isinstance(await Search({"lab": inventory}, {}).by_node(node("b", "")), Unknown)


@pytest.mark.parametrize(
    "read",
    [
        droplets,
        google_instances,
        proxmox_machines,
        incus_routes,
        incus_new_route,
        vsphere_machines,
    ],
)
async def test_all_else_has_its_turn_while_records_without_number_are_read(
    read: Callable[[], Awaitable[None]],
) -> None:
    """A million records took a quarter of a minute of one turn, and a silent worker is ended."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting, began = asyncio.create_task(count()), time.process_time()
    await read()
    counting.cancel()
    assert turns > (time.process_time() - began) / LONGEST_TURN / 10


def hundred_machines() -> tuple[ProxmoxInventory, MachineList]:
    """Proxmox's, whose configurations were read."""
    api: Any = SimpleNamespace(region="r")
    inventory, listed = ProxmoxInventory(api), MachineList()
    for at in range(100):
        raw = {"vmid": at + 1, "type": "qemu", "node": "h", "name": f"a{at}", "status": "running"}
        listed.by_id[at + 1] = machine = cast(ListedMachine, read_listed(raw))
        inventory._cached[at + 1] = machine, Identity(UUID.format(at), "", frozenset())
    return inventory, listed


@pytest.mark.parametrize("looked_at", ["is_called", "known_identity"])
async def test_nodes_and_machines_without_number_are_not_all_compared(
    looked_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxmox: a hundred Nodes beside 10,000 machines took six seconds of one turn."""
    inventory, listed = hundred_machines()
    kind = ListedMachine if looked_at == "is_called" else ProxmoxInventory
    count, look = 0, getattr(kind, looked_at)

    def counting(*arguments: object) -> object:
        nonlocal count
        count += 1
        return look(*arguments)

    monkeypatch.setattr(kind, looked_at, counting)
    search = ProxmoxSearch({"r": listed}, {"r": inventory})
    for at in range(100):
        assert len(await search.by_uuid(node(f"a{at}", ""), UUID.format(at))) == 1
    assert count <= 200


async def test_load_balancers_that_no_account_has_are_gone_through_for_no_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 100,000 each Service that shares the list took a second of the same turn; on Incus another
    cluster may have thousands.
    """

    async def balancers() -> list[Json]:
        return [{"id": "a"}] * 20_000

    section, api = DigitalOceanConfig(), SimpleNamespace(balancers=balancers)
    droplets = Droplets(cast(Any, api), "")
    found = DigitalOceanLoadBalancers(cast(Any, api), droplets, section, Cluster(""))
    assert len(await found.shared_list()) == 20_000
    monkeypatch.setattr("ccm.cloud.record_balancers.MOST_BALANCERS", 1)
    with pytest.raises(CloudError, match="load balancers: the list has more than 1 records"):
        await found.shared_list()


@pytest.mark.parametrize("is_gone", [False, True])
async def test_made_up_uuids_have_all_machines_looked_at_once(
    is_gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxmox: 500 Nodes beside 10,000 machines ended the worker, as kubelets state any UUID."""
    inventory, listed = hundred_machines()
    count, look = 0, ProxmoxInventory._kept

    def counting(*arguments: Any) -> Identity | None:
        nonlocal count
        count += 1
        return look(*arguments)

    async def none() -> list[str]:
        return []

    async def again() -> MachineList:
        return listed

    monkeypatch.setattr(ProxmoxInventory, "_kept", counting)
    monkeypatch.setattr(inventory, "why_incomplete", none)
    monkeypatch.setattr(inventory, "read_again", again)
    search = ProxmoxSearch({"r": listed}, {"r": inventory})
    made_up = [(node(f"b{at}", ""), UUID.format(1000 + at)) for at in range(100)]
    if is_gone:
        proofs = await asyncio.gather(*(search.prove_uuid(*each) for each in made_up))
        assert all(isinstance(proof, Gone) for proof in proofs)
    else:
        assert not any(await asyncio.gather(*(search.by_uuid(*each) for each in made_up)))
    assert count <= 200


@pytest.mark.virtual_time  # a read is for all who ask before it begins, however long that takes
@pytest.mark.parametrize("answer", ["a UUID", "none", "an error"])
async def test_made_up_uuids_have_each_machine_read_few_times(answer: str) -> None:
    """Proxmox: at a start, a hundred Nodes beside as many machines took 10,000 reads, and each time
    where these have no UUID, or cannot be read.
    """
    inventory, listed = hundred_machines()
    inventory._cached.clear()
    read = list[str]()

    async def get(operation: str, path: str) -> Json:
        read.append(path)
        await asyncio.sleep(0.01)
        if answer == "an error":
            raise CloudError("its host does not answer")
        number = int(path.split("/")[-2]) - 1
        uuid = f"uuid={UUID.format(number)}" if answer == "a UUID" else ""
        return {"name": f"a{number}", "smbios1": uuid}

    api: Any = inventory.api
    api.get = get
    search = ProxmoxSearch({"r": listed}, {"r": inventory})
    made_up = [(node(f"b{at}", ""), UUID.format(1000 + at)) for at in range(100)]
    asked = (search.by_uuid(*each) for each in made_up)
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(item, CloudError) if answer == "an error" else not item for item in found)
    assert len(read) <= (100 if answer == "a UUID" else 300)
