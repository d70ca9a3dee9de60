"""The addresses that guest agents tell, and agents that tell none."""

from ipaddress import ip_address
from typing import Any

import pytest

from ccm.errors import Refused
from ccm.model.cloud import Instance
from ccm.model.objects import Node
from ccm.providers.proxmox import addresses, api
from ccm.providers.proxmox.addresses import MAX_INTERFACES, addresses_of, read_interfaces
from ccm.providers.proxmox.config import NetworkSection
from tests.providers.proxmox.conftest import Started, node_with
from tests.providers.proxmox.served import Served, config_of
from tests.providers.proxmox.test_proxmox_instances import UUID, numbered_uuid
from tests.support.deadlines import timeout

MAC = "bc:24:11:00:00:01"
NET = {"net0": f"virtio={MAC.upper()},bridge=vmbr0"}


def interface(mac: str, *cidrs: str, name: str = "eth0") -> dict[str, Any]:
    """One as the agent tells it."""
    listed = []
    for cidr in cidrs:
        address, _, prefix = cidr.partition("/")
        kind = f"ipv{ip_address(address).version}"
        listed.append({"ip-address": address, "prefix": int(prefix), "ip-address-type": kind})
    return {"name": name, "hardware-address": mac, "ip-addresses": listed}


@pytest.fixture
async def auto(pve: Served) -> Started:
    """The provider that asks agents."""
    return await Started(config_of(pve.section(), features={"mode": "auto"})).start()


def reported(answer: Instance) -> list[str]:
    return [one.address for one in answer.addresses[:-1]]


async def test_what_is_not_the_machines_is_left_out() -> None:
    """PX22, PX23: by MAC, and an address of its own beside one with a network."""
    answer = {
        "result": [
            interface("02:42:00:00:00:01", "172.17.0.1/16", name="docker0"),
            interface(MAC.upper(), "fe80::1/64", "2001:db8::5/64", "10.0.0.5/24"),
            interface(MAC, "169.254.7.7/16", "10.0.0.9/24", "10.0.0.100/32", "127.0.0.1/8"),
            {"hardware-address": MAC, "ip-addresses": [{"ip-address": "x"}, None, {}]},
            {"hardware-address": MAC, "ip-addresses": [{"ip-address": "2001:db8::1%\x1b[31m"}]},
            "odd",
        ]
    }
    found = read_interfaces(answer, frozenset({MAC}))
    assert [str(one) for one in found] == ["10.0.0.5", "10.0.0.9", "2001:db8::5"]
    assert read_interfaces({"result": None}, frozenset({MAC})) == []


@pytest.mark.parametrize(
    ("name", "mac"),
    [
        pytest.param("bond0", "5a:27:a4:b2:11:08", id="a-bond-with-a-mac-of-its-own"),
        pytest.param("br0", "5a:27:a4:b2:11:09", id="a-bridge-with-a-mac-of-its-own"),
        pytest.param("br-lan", "5a:27:a4:b2:11:09", id="a-bridge-with-a-name-of-ones-own"),
        pytest.param("enp6s16", "3c:fd:fe:aa:00:01", id="a-passed-through-nic"),
    ],
)
def test_the_interface_that_holds_the_address_counts(name: str, mac: str) -> None:
    """`systemd` gives bonds and bridges other MACs than those of their NICs."""
    answer = {
        "result": [
            interface("00:00:00:00:00:00", "127.0.0.1/8", name="lo"),
            interface(MAC, name="eth0"),
            interface(mac, "10.0.0.5/24", "2001:db8::5/64", name=name),
        ]
    }
    found = read_interfaces(answer, frozenset({MAC}))
    assert [str(one) for one in found] == ["10.0.0.5", "2001:db8::5"]


@pytest.mark.parametrize(
    "name",
    [
        "docker0",
        "br-0123456789ab",
        "cni0",
        "flannel.1",
        "vxlan.calico",
        "cali0123456789a",
        "cilium_host",
        "lxc_health",
        "kube-ipvs0",
        "kube-bridge",
        "nodelocaldns",
        "veth0a1b2c3d",
        "tunl0",
        "wg0",
        "virbr0",
        "dummy0",
        "antrea-gw0",
        "ovn-k8s-mp0",
        "weave",
    ],
)
def test_interfaces_of_pods_and_tunnels_do_not_count(name: str) -> None:
    answer = {"result": [interface("5a:27:a4:b2:11:08", "10.244.0.1/24", name=name)]}
    assert read_interfaces(answer, frozenset({MAC})) == []


async def test_a_guest_has_so_many_addresses_and_no_more() -> None:
    """Whoever is root in it can make any number of interfaces, too."""
    cidrs = [[f"10.{one}.{two}.1/24" for two in range(60)] for one in range(20)]
    answer = {"result": [interface(MAC, *some) for some in cidrs]}
    found = read_interfaces(answer, frozenset({MAC}))
    assert [str(one) for one in found] == [c.partition("/")[0] for s in cidrs for c in s][:100]


def test_of_interfaces_without_number_some_are_looked_at() -> None:
    """Root in the guest answers for the agent: millions kept the node worker busy for seconds."""
    looks = list[str]()

    class Interface(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            looks.append(key)
            return super().get(key, default)

    answer = {"result": [Interface(name="lo") for _ in range(4 * MAX_INTERFACES)]}
    assert read_interfaces(answer, frozenset({MAC})) == []
    assert looks.count("name") == MAX_INTERFACES


async def test_rules_say_what_addresses_are() -> None:
    """PX22: the order is the list's, and what the kubelet has counts whatever the rules say."""
    section = NetworkSection(
        "auto",
        has_ipv6=False,
        external=(network("192.0.2.0/24"),),
        excluded=(network("10.9.0.0/16"), network("10.0.0.0/24")),
        order=(network("192.0.2.0/24"), network("10.0.0.0/8")),
    )
    agents = [ip_address(one) for one in ("10.1.0.1", "192.0.2.7", "10.9.0.1", "2001:db8::1")]
    found = addresses_of(node_with("node-1", ip="10.0.0.5"), agents, section)
    kinds = [(one.type.value, one.address) for one in found]
    assert kinds == [
        ("ExternalIP", "192.0.2.7"),
        ("InternalIP", "10.0.0.5"),
        ("InternalIP", "10.1.0.1"),
        ("Hostname", "node-1"),
    ]


def network(cidr: str) -> Any:
    from ipaddress import ip_network

    return ip_network(cidr)


async def test_agents_tell_addresses(pve: Served, auto: Started) -> None:
    machine = pve.add(100, "node-1", UUID, config=NET)
    machine.agent = {"interfaces": [interface(MAC, "10.0.0.5/24", "10.0.0.6/24")]}
    asked = node_with("node-1", UUID, ip="10.0.0.6")
    assert reported(await auto.known(asked)) == ["10.0.0.6", "10.0.0.5"]
    assert reported(await auto.known(asked)) == ["10.0.0.6", "10.0.0.5"]
    assert auto.operations.count("GetGuestAddresses") == 1, "an answer counts for a while"


async def test_without_an_agent_the_kubelets_address_is_enough(pve: Served, auto: Started) -> None:
    """PX21: asked once in a while, and no error."""
    pve.add(100, "node-1", UUID)
    asked = node_with("node-1", UUID, ip="10.0.0.5", addresses=("10.0.0.5", "10.0.0.7"))
    for _ in range(3):
        assert reported(await auto.known(asked)) == ["10.0.0.5"]
    assert auto.operations.count("GetGuestAddresses") == 1


async def test_agents_that_hang_delay_no_one_for_long(
    pve: Served, auto: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PX20: ten of them cost one short wait; Nodes keep what they have."""
    monkeypatch.setattr(addresses, "AGENT_WAIT", timeout(0.25))
    monkeypatch.setattr(api, "AGENT_TIMEOUT", timeout(api.AGENT_TIMEOUT))
    monkeypatch.setattr(pve, "time_scale", timeout(0.5))
    nodes = list[Node]()
    for number in range(11):
        vmid = 100 + number
        machine = pve.add(vmid, f"node-{number}", numbered_uuid(number), config=NET)
        machine.agent = {"interfaces": [interface(MAC, "10.0.0.5/24")]}
        machine.agent_hangs = number > 0
        provider_id = f"proxmox://one/{vmid}"
        nodes.append(node_with(machine.name, numbered_uuid(number), provider_id, "", ("10.0.1.1",)))
    answers = await auto.describe(*nodes)  # the agents take twenty times as long
    assert auto.gate.errors == [], "it waited for agents until they failed"
    assert all(isinstance(one, Instance) for one in answers.values())
    first, *hanging = [one for one in answers.values() if isinstance(one, Instance)]
    assert reported(first) == ["10.0.0.5"]
    assert all(one.addresses == () for one in hanging), "they keep what they have"


async def test_agents_that_fail_are_no_outage_of_the_cloud(pve: Served, auto: Started) -> None:
    """Each guest decides what its agent answers: what is refused counts as an answer."""
    nodes = list[Node]()
    for number in range(3):
        machine = pve.add(100 + number, f"node-{number}", numbered_uuid(number), config=NET)
        nodes.append(node_with(machine.name, numbered_uuid(number)))
    await auto.describe(*nodes)
    assert [isinstance(error, Refused) for error in auto.gate.errors] == [True] * 3


async def test_an_agent_that_hangs_is_asked_by_one_host(
    pve: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each host would wait for it, and a host that is well would be asked last."""
    section = pve.section(url=f"{pve.url},{pve.url}")
    auto = await Started(config_of(section, features={"mode": "auto"})).start()
    monkeypatch.setattr(addresses, "AGENT_WAIT", timeout(10.0))
    monkeypatch.setattr(api, "AGENT_TIMEOUT", timeout(0.25))
    monkeypatch.setattr(pve, "time_scale", timeout(1.0))
    machine = pve.add(100, "node-1", UUID, config=NET)
    machine.agent, machine.agent_hangs = {"interfaces": []}, True
    auto.gate.timeout = timeout(2.0)
    await auto.describe(node_with("node-1", UUID))
    assert len(pve.paths("/agent/")) == 1
    assert [isinstance(error, Refused) for error in auto.gate.errors] == [True]


async def test_an_agent_that_fails_later_changes_no_address(
    pve: Served, auto: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "AGENT_TTL", 0.0)
    machine = pve.add(100, "node-1", UUID, config=NET)
    machine.agent = {"interfaces": [interface(MAC, "10.0.0.5/24")]}
    asked = node_with("node-1", UUID)
    there = reported(await auto.known(asked))
    machine.agent = None
    for _ in range(2):
        assert reported(await auto.known(asked)) == there == ["10.0.0.5"]
    assert auto.operations.count("GetGuestAddresses") >= 2


async def test_a_number_that_was_given_again_has_not_the_addresses_of_before(
    pve: Served, auto: Started
) -> None:
    """PX3."""
    machine = pve.add(100, "node-1", UUID, config=NET)
    machine.agent = {"interfaces": [interface(MAC, "10.0.0.5/24")]}
    await auto.known(node_with("node-1", UUID))
    pve.remove(100)
    other = pve.add(100, "node-2", numbered_uuid(2), config=NET)
    other.agent = {"interfaces": [interface(MAC, "10.0.0.6/24")]}
    assert reported(await auto.known(node_with("node-2", numbered_uuid(2)))) == ["10.0.0.6"]
