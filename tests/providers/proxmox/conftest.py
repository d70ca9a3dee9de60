"""A stand-in for Proxmox, and the provider started in it."""

from collections.abc import Iterator

import pytest

from ccm.cloud.testkit.harness import node
from ccm.model.objects import PROVIDED_NODE_IP, Node
from ccm.providers.proxmox.provider import ProxmoxCloud
from tests.providers.proxmox.served import Served, config_of
from tests.providers.started import StartedProvider


class Started(StartedProvider, ProxmoxCloud):
    """The provider with its gate."""

    def __init__(self, config: str) -> None:
        super().__init__(config, "proxmox.yaml")


def node_with(
    name: str, uuid: str = "", provider_id: str = "", ip: str = "", addresses: tuple[str, ...] = ()
) -> Node:
    """A Node whose kubelet read this UUID and has this `--node-ip`."""
    raw = dict(node(name, provider_id).raw)
    raw["metadata"] = {**raw["metadata"], **({"annotations": {PROVIDED_NODE_IP: ip}} if ip else {})}
    listed = [{"type": "InternalIP", "address": one} for one in addresses]
    raw["status"] = {"nodeInfo": {"systemUUID": uuid}, "addresses": listed}
    return Node(raw)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("pve")).running() as pve:
        yield pve


@pytest.fixture(scope="session")
def other_served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("other")).running() as pve:
        yield pve


@pytest.fixture
def pve(served: Served) -> Served:
    """A cluster without machines."""
    served.reset()
    return served


@pytest.fixture
def other(other_served: Served) -> Served:
    """Another one."""
    other_served.reset()
    return other_served


@pytest.fixture
async def cloud(pve: Served) -> Started:
    return await Started(config_of(pve.section())).start()
