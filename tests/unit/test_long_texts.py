"""A text of an answer may have megabytes: what is made of one takes no longer than to copy it."""

import gc
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyVmomi import vim

from ccm.errors import CloudError
from ccm.model.cloud import read_address, read_network
from ccm.model.objects import Node, _is_label, is_label, label_value
from ccm.providers.aws.ids import instance_id_of
from ccm.providers.aws.topology import NetworkTopology
from ccm.providers.azure.api import failure
from ccm.providers.azure.ids import machine_of, scope_of
from ccm.providers.azure.lb.owners import services_of
from ccm.providers.digitalocean.lb.plan import has_address
from ccm.providers.gce.ids import instance_of
from ccm.providers.gce.lb.names import described
from ccm.providers.incus.ids import uuid_of
from ccm.providers.incus.lb.addresses import allowed_subnets
from ccm.providers.openstack.ids import server_id_of
from ccm.providers.proxmox.inventory import read_identity
from ccm.providers.vsphere.inventory import InventoryReader

SIZE = 8_000_000  # characters
VCENTER: Any = SimpleNamespace(name="vc", vcenter=SimpleNamespace(datacenters=()))
MACHINE = vim.VirtualMachine("vm-1", None)
TOPOLOGY = NetworkTopology(cast(Any, None), "")
Use = Callable[[str], object]


@pytest.fixture(autouse=True)
def no_search_for_garbage() -> Iterator[None]:
    """One of all that a run of tests keeps takes as long as what is measured."""
    gc.disable()
    yield
    gc.enable()


def read_machine(name: str) -> None:
    """Read what a vCenter lists under this name, without a loop, which would show it."""
    named = [SimpleNamespace(name="name", val=name)]
    listed = SimpleNamespace(obj=MACHINE, propSet=named, missingSet=[])
    with pytest.raises(StopIteration):
        InventoryReader(VCENTER)._understood([listed]).send(None)


def is_reached_at(address: str) -> bool:
    """Whether a Node that says so of itself has an address."""
    node = Node({"status": {"addresses": [{"type": "ExternalIP", "address": address}]}})
    return has_address(node, 4, ("ExternalIP",))


@pytest.mark.parametrize(
    ("begin", "repeated", "use"),
    [
        pytest.param("", "/", label_value, id="label"),
        pytest.param("", "1.", read_address, id="address"),
        pytest.param("", "1.", lambda text: read_network(f"{text}/24"), id="network"),
        pytest.param("", ".", is_reached_at, id="digitalocean-address"),
        pytest.param(
            "",
            "a",
            lambda text: failure("PutRouteTable", "Failed", {"code": text}),
            id="azure-code",
        ),
        pytest.param("/subscriptions/", "a", scope_of, id="azure-id"),
        pytest.param(
            "", ",", lambda text: services_of({"tags": {"service": text}}), id="azure-tag"
        ),
        pytest.param("", ",", lambda text: read_identity({"smbios1": text}, ""), id="proxmox-bios"),
        pytest.param("[", "[],", lambda text: described({"description": text}), id="gce-owner"),
        pytest.param(
            "", "up:10.0.0.0/32,", lambda text: [*allowed_subnets(text, "up")], id="incus-subnets"
        ),
        pytest.param("", "%41", read_machine, id="vsphere-name"),
        pytest.param("p", "1", lambda text: TOPOLOGY.labels_of({"i-1": text}), id="aws-type"),
    ],
)
def test_a_text_of_megabytes_takes_no_time(begin: str, repeated: str, use: Use) -> None:
    """One of 60 MB took up to seven seconds of one turn."""
    text = begin + repeated * (SIZE // len(repeated))
    began = time.thread_time()
    "".join(map(str.lower, [text] * 8))
    copied = time.thread_time()
    use(text)
    assert time.thread_time() - copied < copied - began


@pytest.mark.parametrize(
    ("begin", "repeated", "use"),
    [
        pytest.param(
            "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/",
            ".",
            machine_of,
            id="azure",
        ),
        pytest.param("gce://a", "a", instance_of, id="gce"),
        pytest.param("incus://", "A", uuid_of, id="incus"),
        pytest.param("openstack://", "A", server_id_of, id="openstack"),
        pytest.param("aws:///", "/", instance_id_of, id="aws"),
    ],
)
def test_a_provider_id_of_megabytes_takes_no_time(begin: str, repeated: str, use: Use) -> None:
    """Each Service looks at those of all Nodes, some again and again: twenty took seconds."""
    node = Node({"spec": {"providerID": begin + repeated * SIZE}})
    began = time.thread_time()
    node.raw["spec"]["providerID"].lower()
    copied = time.thread_time()
    use(node.provider_id)
    assert time.thread_time() - copied < copied - began


def test_a_label_of_megabytes_is_not_kept() -> None:
    """Of a thousand of them there was something until a restart."""
    before = _is_label.cache_info().currsize
    assert not is_label("a", "a" * SIZE)
    assert _is_label.cache_info().currsize == before


@pytest.mark.parametrize("code", ["RouteTableLimitReached", "QUOTAEXCEEDED", "Other"])
def test_a_code_that_ends_so_says_that_a_quota_is_used_up(code: str) -> None:
    error = failure("PutRouteTable", "Failed", {"code": code})
    assert (type(error) is CloudError) is (code == "Other")
