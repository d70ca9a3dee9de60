"""A real Incus for all tests here that need one, and the provider started in it."""

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.interface import ProviderContext
from ccm.cloud.testkit.gate import KitGate
from ccm.cloud.testkit.harness import node
from ccm.model.cloud import Answer
from ccm.model.objects import Node
from ccm.providers.incus.provider import IncusCloud
from tests.labs.incus.gateway import Gateway
from tests.labs.incus.lab import MISSING, Lab, is_installed, is_running, running_lab
from tests.proc.running import IS_LONG
from tests.worlds.needed import needed


class Started(IncusCloud):
    """The provider with its gate."""

    def __init__(self, config: str, cluster: str = "kit", uid: str = "") -> None:
        super().__init__()
        self.config, self.cluster, self.uid = config, cluster, uid
        self.gate = KitGate(15.0)

    async def start(self) -> "Started":
        config = self.config.encode()
        await self.initialize(
            ProviderContext(
                self.gate, config, "incus.conf", self.cluster, "test", cluster_uid=self.uid
            )
        )
        return self

    async def describe(self, *nodes: Node) -> Mapping[str, Answer]:
        assert self.instances
        return await invoke(self.instances.describe, nodes)

    async def describe_one(self, name: str, provider_id: str = "") -> Answer:
        return (await self.describe(node(name, provider_id)))[name]

    @property
    def operations(self) -> list[str]:
        return [call.operation for call in self.gate.calls]


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """With `CCM_LONG` one that is started if need be; without it only one that runs already."""
    if not IS_LONG and ("CI" in os.environ or not is_running()):
        pytest.skip("takes minutes: set CCM_LONG=1, or start the lab: make lab-incus")
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly how many tests did not run for want of the lab."""
    skipped = terminalreporter.stats.get("skipped", [])
    if count := sum(MISSING in str(report.longrepr) for report in skipped):
        terminalreporter.write_line(f"NOT RUN: {count} tests; {MISSING}", red=True, bold=True)
