"""The server, and the provider started against it."""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ccm.cloud.testkit.harness import node_of
from ccm.model.objects import Json, Node
from ccm.providers.gce.credentials import KEY_FILE, METADATA_VARIABLE
from ccm.providers.gce.lb import load_balancers
from ccm.providers.gce.provider import GceCloud
from tests.labs.gce.server import Gce
from tests.providers.gce.adapter import config_of, machine_of
from tests.providers.started import StartedProvider


class Started(StartedProvider, GceCloud):
    """The provider with its gate."""

    def __init__(self, config: str, **more: Any) -> None:
        uid = "0c1b2d3e-0000-4000-8000-000000000001"
        super().__init__(config, "gce.conf", cluster_uid=uid, **more)


Start = Callable[..., Awaitable[Started]]


def host(record: Json) -> Node:
    """The initialized Node of an instance."""
    return node_of(machine_of(record))


@pytest.fixture(scope="session")
def served() -> Iterator[Gce]:
    with Gce().running() as server:
        yield server


@pytest.fixture
def gce(served: Gce, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gce]:
    """An empty project; whatever is sent and answered has to keep to the contract."""
    monkeypatch.delenv(KEY_FILE, raising=False)
    monkeypatch.setattr(load_balancers, "GATHER", 0.0)
    monkeypatch.setenv(METADATA_VARIABLE, served.url.removeprefix("http://"))
    served.reset()
    yield served
    assert not served.violations


@pytest.fixture
def start(gce: Gce) -> Start:
    """Starts the provider with these lines in its configuration."""
    return lambda *lines, **more: Started(config_of(gce, *lines), **more).start()


@pytest.fixture
async def cloud(start: Start) -> Started:
    return await start()


@pytest.fixture
def key_file(gce: Gce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `GOOGLE_APPLICATION_CREDENTIALS` names; it is not there yet."""
    file = tmp_path / "key.json"
    monkeypatch.setenv(KEY_FILE, str(file))
    return file
