"""The lab, and the provider started in it."""

from collections.abc import Iterator
from typing import Any

import pytest

from ccm.cloud.interface import SecretReader
from ccm.cloud.testkit import harness
from ccm.model.objects import Json, Node
from ccm.providers.azure.config import ENVIRONMENT
from ccm.providers.azure.provider import AzureCloud
from tests.labs.azure.lab import MISSING, Lab, is_built, running_lab
from tests.providers.started import ServingProvider
from tests.support.needed import needed


class Started(ServingProvider, AzureCloud):
    """The provider with its gate."""

    def __init__(self, config: str, read_secret: SecretReader | None = None, **more: Any) -> None:
        super().__init__(config, "azure.json", read_secret=read_secret, **more)


def provider_id(machine: Json) -> str:
    return f"azure://{machine['id']}"


def host(machine: Json, name: str = "") -> Node:
    """The initialized Node of a machine."""
    return harness.node(name or machine["name"], provider_id(machine))


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    needed(is_built() or None, MISSING)
    with running_lab(tmp_path_factory.mktemp("azure")) as lab:
        yield lab


@pytest.fixture
def lab(served: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """Empty; whatever is sent and answered fits Microsoft's types."""
    for variable in ENVIRONMENT.values():
        monkeypatch.delenv(variable, raising=False)
    served.reset()
    yield served
    assert not served.state()["bad_answers"]


@pytest.fixture
async def cloud(lab: Lab) -> Started:
    return await Started(lab.config()).start()


@pytest.fixture
def node(lab: Lab) -> Node:
    return host(lab.add_machine("node-1"))
