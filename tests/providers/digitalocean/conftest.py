"""The server, and the provider started against it."""

from collections.abc import Iterator
from typing import Any

import pytest

from ccm.cloud.testkit.harness import node_of
from ccm.model.objects import Json, Node
from ccm.providers.digitalocean.config import ENVIRONMENT
from ccm.providers.digitalocean.provider import DigitalOceanCloud
from tests.labs.digitalocean.server import DigitalOcean
from tests.providers.digitalocean.adapter import config_of, machine_of
from tests.providers.started import ServingProvider


class Started(ServingProvider, DigitalOceanCloud):
    """The provider with its gate."""

    def __init__(self, config: str, **more: Any) -> None:
        super().__init__(config, "do.conf", **more)


def host(record: Json) -> Node:
    """The initialized Node of a droplet."""
    return node_of(machine_of(record))


@pytest.fixture(scope="session")
def served() -> Iterator[DigitalOcean]:
    with DigitalOcean().running() as server:
        yield server


@pytest.fixture
def do(served: DigitalOcean, monkeypatch: pytest.MonkeyPatch) -> Iterator[DigitalOcean]:
    """An empty account; whatever is sent and answered has to keep to the contract."""
    for variable in ENVIRONMENT:
        monkeypatch.delenv(variable, raising=False)
    served.reset()
    yield served
    assert not served.violations


@pytest.fixture
def worker(do: DigitalOcean) -> Json:
    return do.add_droplet("worker")


@pytest.fixture
async def cloud(do: DigitalOcean) -> Started:
    return await Started(config_of(do)).start()
