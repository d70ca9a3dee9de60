"""Our package is replaced on disk, as `pip install --upgrade` does, under a running supervisor."""

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

import ccm
from tests.support.environment import LEASE, Environment
from tests.support.kube.ports import ReservedPort
from tests.support.running import Supervisor, Where, children_of, command, until, wait_for

pytestmark = pytest.mark.real

ENTRY_POINTS = "[ccm.cloud_providers]\ncopied = ccm.providers.simulated.provider:SimulatedCloud\n"


class Package:
    """A copy of ours, which processes import while it is there."""

    def __init__(self, site: Path) -> None:
        self.site = site
        for name in ("ccm", "workers"):
            shutil.copytree(Path(ccm.__file__).parents[1] / name, site / name)
        metadata = site / "ccm_copied-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: ccm-copied\nVersion: 1.0\n"
        )
        (metadata / "entry_points.txt").write_text(ENTRY_POINTS)

    def replace(self) -> None:
        """Let another version be there, which this one cannot go on with."""
        shutil.rmtree(self.site)
        for name in ("ccm", "workers"):
            (self.site / name).mkdir(parents=True)
            (self.site / name / "__init__.py").write_text("raise ImportError('another version')\n")


class Copied(Supervisor):
    """One that runs from the copy."""

    def __init__(self, where: Where, *flags: str) -> None:
        super().__init__(where, "--cloud-provider=copied", *flags)

    def command(self, arguments: list[str]) -> list[str]:
        return [sys.executable, "-P", "-m", *arguments]

    def kill_template(self) -> None:
        for pid in children_of(self.process.pid) - {*self.pids().values()}:
            os.kill(pid, signal.SIGKILL)

    async def replace_killed(self, worker: str) -> None:
        before = self.pids()[worker]
        os.kill(before, signal.SIGKILL)
        await until("it runs again", lambda: self.is_replaced(worker, before))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    package = Package(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(package.site))
    return package


async def test_all_goes_on_when_the_package_is_replaced_under_a_running_supervisor(
    env: Environment, package: Package
) -> None:
    await env.add_nodes(3)
    with Copied(env.where) as supervisor:
        await env.nodes.until_initialized(3)
        supervisor.wait_running()
        package.replace()
        await supervisor.replace_killed("node-0")
        await command(supervisor, "reload")
        await env.add_nodes(3, first=4)
        await env.nodes.until_initialized(6)
        await until("it is logged", lambda: "package replaced on disk" in supervisor.tail())
        assert supervisor.end() == 0
    assert "Traceback" not in supervisor.log.read_text()


async def test_what_is_replaced_right_after_a_start_is_needed_no_more(
    where: Where, package: Package
) -> None:
    port = ReservedPort()
    address = ("--bind-address=127.0.0.1", f"--secure-port={port.number}", "--permit-port-sharing")
    with Copied(where, *address) as supervisor:
        wait_for("it says so", lambda: "supervisor started" in supervisor.tail())
        package.replace()
        supervisor.wait_running()
        await supervisor.replace_killed("node-0")
        assert supervisor.end() == 0
    port.release()
    assert "Traceback" not in supervisor.log.read_text()


async def test_without_a_template_a_replaced_package_ends_the_supervisor_in_order(
    env: Environment, package: Package
) -> None:
    with Copied(env.where) as supervisor:
        await until("it leads", supervisor.is_leading)
        supervisor.wait_running()
        package.replace()
        supervisor.kill_template()
        os.kill(supervisor.pids()["node-0"], signal.SIGKILL)
        assert supervisor.exit_code() == 1
        assert "workers would be of another version" in supervisor.tail()
    assert not (await env.lease_spec(LEASE))["holderIdentity"]
