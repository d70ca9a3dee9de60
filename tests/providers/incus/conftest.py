"""A real Incus for all tests here that need one, and the provider started in it."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ccm.providers.incus.provider import IncusCloud
from tests.labs.incus.gateway import Gateway
from tests.labs.incus.lab import MISSING, Lab, is_installed, is_running, running_lab
from tests.providers.started import StartedProvider
from tests.support.needed import needed
from tests.support.running import IS_LONG, WITH_LONG


class Started(StartedProvider, IncusCloud):
    """The provider with its gate."""

    def __init__(self, config: str, cluster: str = "kit", uid: str = "") -> None:
        super().__init__(config, "incus.conf", cluster_name=cluster, cluster_uid=uid)


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """With `CCM_LONG` one that is started if need be; without it only one that runs already."""
    if not IS_LONG and ("CI" in os.environ or not is_running()):
        pytest.skip(f"{WITH_LONG}, or start the lab: make lab-incus")
    needed(is_installed(), MISSING)
    with running_lab() as lab:
        yield lab


@pytest.fixture
def gateway(lab: Lab, tmp_path: Path) -> Iterator[Gateway]:
    """What a test may let fail."""
    with lab.gateway(tmp_path / "incus").running() as gateway:
        yield gateway


@pytest.fixture
async def cloud(lab: Lab, gateway: Gateway) -> AsyncIterator[Started]:
    """The provider behind the gateway, with the restricted certificate."""
    started = await Started(lab.config(f"unix://{gateway.socket}")).start()
    yield started
    await started.close()
