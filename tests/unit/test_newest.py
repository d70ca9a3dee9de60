"""What is kept of machines, which come and go for as long as a process runs, has an end."""

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ccm.cloud.newest import MOST_KEPT, Newest
from ccm.errors import CloudError
from ccm.providers.aws.vpc import Vpc
from ccm.providers.digitalocean.droplets import Droplets
from ccm.providers.proxmox.addresses import GuestAgents
from ccm.providers.proxmox.config import NetworkSection
from ccm.providers.vsphere.config import VsphereConfig
from ccm.providers.vsphere.instances import VsphereInstances
from ccm.providers.vsphere.inventory import InventoryReader

ANY = cast(Any, SimpleNamespace(name="one"))
MANY = range(MOST_KEPT + 10)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def test_the_newest_are_kept() -> None:
    newest = Newest[str, int](2)
    for at, key in enumerate("abac"):
        newest[key] = at
    assert newest == {"a": 2, "c": 3}


def test_nodes_of_ever_new_names_on_a_machine_without_address_take_no_memory() -> None:
    """vSphere: any kubelet that may register Nodes made each of them a reason that was kept."""
    instances = VsphereInstances([], VsphereConfig(()))
    for number in MANY:
        instances._log_once(f"node-{number}", "it reports no address")
    assert len(instances._logged) == MOST_KEPT
    assert MANY[-1] == int([*instances._logged][-1].removeprefix("node-"))


def test_machines_that_are_gone_take_no_memory() -> None:
    """vSphere, DigitalOcean, AWS: those of each Node that ever was were kept."""
    reader, droplets, vpc = InventoryReader(ANY), Droplets(ANY, ""), Vpc(ANY, "vpc-1", 60.0)
    for number in MANY:
        reader.remember(cast(Any, SimpleNamespace(uuid=str(number), moid=f"vm-{number}")))
        droplets.remember({number})
        vpc._warn({f"i-{number}": CloudError("it lacks the tag")})
    assert len(reader._cached) == len(droplets._own) == MOST_KEPT
    assert len(vpc._warned_of) <= MOST_KEPT


async def test_agents_of_machines_that_are_gone_take_no_memory() -> None:
    """Proxmox: what each had reported was kept."""
    agents = GuestAgents(ANY, NetworkSection(mode="qemu"))
    agents._under_way = cast(Any, {(vmid, "uuid"): None for vmid in MANY})
    identity = cast(Any, SimpleNamespace(uuid="uuid"))
    await agents.ask([(cast(Any, SimpleNamespace(vmid=vmid)), identity) for vmid in MANY])
    assert len(agents._reported) == MOST_KEPT
