"""A vCenter of the lab, and the provider started in it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from ccm.cloud.interface import SecretReader
from ccm.cloud.testkit.harness import node
from ccm.model.objects import UNINITIALIZED_TAINT, Node
from ccm.providers.vsphere.provider import VsphereCloud
from tests.labs.vsphere.lab import LABELS, MISSING, Lab, is_built, running_lab
from tests.providers.started import StartedProvider
from tests.support.needed import needed

UNINITIALIZED = {"key": UNINITIALIZED_TAINT, "effect": "NoSchedule"}


class Started(StartedProvider, VsphereCloud):
    """The provider with its gate."""

    def __init__(self, config: str, read_secret: SecretReader | None = None) -> None:
        super().__init__(config, "vsphere.yaml", read_secret=read_secret)


def node_with(name: str, uuid: str = "", provider_id: str = "", is_new: bool = False) -> Node:
    """A Node whose kubelet read this UUID; a new one waits for us."""
    raw = dict(node(name, provider_id).raw)
    raw["status"] = {"nodeInfo": {"systemUUID": uuid}}
    if is_new:
        raw["spec"] = {**raw.get("spec", {}), "taints": [UNINITIALIZED]}
    return Node(raw)


def node_of(machine: Mapping[str, Any], is_new: bool = False) -> Node:
    """The Node of a machine as the lab lists it, with its provider ID unless it is new."""
    uuid = machine["uuid"]
    return node_with(machine["name"], uuid, "" if is_new else f"vsphere://{uuid}", is_new)


@pytest.fixture(scope="session")
def new_lab(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Makes a context in which a vCenter with these flags runs."""
    needed(is_built(), MISSING)
    return lambda *flags: running_lab(tmp_path_factory.mktemp("vcenter"), flags)


@pytest.fixture(scope="session")
def served(new_lab: Callable[..., Any]) -> Iterator[Lab]:
    with new_lab("-vm", "0", "-folder", "1") as lab:
        yield lab


@pytest.fixture(scope="session")
def other_served(new_lab: Callable[..., Any]) -> Iterator[Lab]:
    with new_lab("-vm", "0") as lab:
        yield lab


@pytest.fixture
def lab(served: Lab) -> Lab:
    """A vCenter without machines, with one datacenter in a folder."""
    served.reset()
    return served


@pytest.fixture
def other(other_served: Lab) -> Lab:
    """Another one."""
    other_served.reset()
    return other_served


@pytest.fixture
async def cloud(lab: Lab) -> Started:
    """Without categories for zones and regions."""
    return await Started(lab.config()).start()


@pytest.fixture
async def tagged(lab: Lab) -> Started:
    """With them."""
    return await Started(lab.config(LABELS)).start()
