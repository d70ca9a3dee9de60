"""Hosts that have little memory or CPU time, that sleep for a while, or that have no IPv4."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.support.cgroups import ControlGroup, why_no_cgroups
from tests.support.environment import LEASE, Environment, until_renewed
from tests.support.installed import install
from tests.support.namespaces import why_no_namespaces
from tests.support.needed import needed
from tests.support.replicas import Durations
from tests.support.running import (
    ALL_CONTROLLERS,
    IS_LONG,
    Supervisor,
    Where,
    children_of,
    until,
)

pytestmark = [pytest.mark.real, *([pytest.mark.timeout(3600)] if IS_LONG else [])]

MEMORY = 600 << 20  # bytes
HTTPS = 10258
GREEDY = """
import os, sys, threading
from ccm.providers.simulated.provider import SimulatedCloud

def take():
    kept = []
    while os.path.exists(os.environ["GREEDY"]):
        kept.append(b"x" * (8 << 20))

class Greedy(SimulatedCloud):
    async def initialize(self, context):
        await super().initialize(context)
        if context.caller == "service":
            threading.Thread(target=take, daemon=True).start()
"""


class Grouped(Supervisor):
    """A supervisor in a control group, with all its workers."""

    def __init__(self, group: ControlGroup, where: Where, *flags: str) -> None:
        self._group = group
        super().__init__(where, *flags)

    def command(self, arguments: list[str]) -> list[str]:
        return self._group.command(super().command(arguments))


@contextmanager
def control_group(controller: str) -> Iterator[ControlGroup]:
    missing = why_no_cgroups(controller)
    needed(not missing, missing)
    with ControlGroup(controller) as group:
        yield group


@pytest.fixture
def memory() -> Iterator[ControlGroup]:
    with control_group("memory") as group:
        yield group


@pytest.fixture
def cpu() -> Iterator[ControlGroup]:
    with control_group("cpu") as group:
        yield group


def oom_score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


async def test_the_kernel_kills_the_worker_that_takes_all_memory_and_no_other_process(
    env: Environment, memory: ControlGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    greedy = env.directory / "greedy"
    monkeypatch.setenv("GREEDY", str(greedy))
    install(env.directory / "site", monkeypatch, provider="greedy = greedy:Greedy", greedy=GREEDY)
    memory.limit_memory(MEMORY)
    flags = ("--cloud-provider=greedy", "--worker-memory-limit=0")
    with Grouped(memory, env.where, *ALL_CONTROLLERS, *flags) as supervisor:
        before = {name: worker["pid"] for name, worker in supervisor.wait_running().items()}
        own = oom_score(supervisor.process.pid)
        assert min(oom_score(pid) for pid in before.values()) > own
        greedy.touch()
        os.kill(before["service"], signal.SIGKILL)  # its successors are greedy
        await until("it dies", lambda: supervisor.log.read_text().count("exit_code=-9") > 3)
        await env.add_nodes(3)
        await env.nodes.until_initialized(3)
        greedy.unlink()
        await until("it is back", lambda: supervisor.is_replaced("service", before["service"]))
        await env.add_services(1)
        await env.until_served(1)
        after = supervisor.pids()
        assert {name for name in after if after[name] != before[name]} == {"service"}
        assert supervisor.is_leading()
        assert supervisor.end() == 0


async def test_a_twentieth_of_a_processor_costs_no_worker_and_no_lease(
    env: Environment, cpu: ControlGroup
) -> None:
    with Grouped(cpu, env.where) as supervisor:
        before = supervisor.wait_running()["node-0"]["pid"]
        await until("it leads", supervisor.is_leading)
        terms = (await env.lease_spec(LEASE))["leaseTransitions"]
        cpu.limit_cpu(0.05)
        await env.add_nodes(3)
        await env.nodes.until_initialized(3)
        await until_renewed(env.api, LEASE, 60 if IS_LONG else 8)
        cpu.limit_cpu(None)
        began = time.monotonic()
        await env.add_nodes(3, first=4)
        await env.nodes.until_initialized(6)
        print(f"right after {time.monotonic() - began:.1f} s")
        assert supervisor.pids()["node-0"] == before
        assert (await env.lease_spec(LEASE))["leaseTransitions"] == terms
        assert supervisor.end() == 0


CLOCK = """
import datetime, os, time

def _ahead():
    try:
        return float(open(os.environ["CLOCK_AHEAD"]).read() or 0)
    except OSError:
        return 0.0

class Ahead(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(seconds=_ahead())

_time = time.time
time.time = lambda: _time() + _ahead()
datetime.datetime = Ahead
"""


async def test_a_host_that_slept_has_its_leader_again_and_lost_nothing(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All processes stop for longer than the Lease; after that, the clock is an hour ahead."""
    site, ahead = env.directory / "site", env.directory / "ahead"
    site.mkdir()
    (site / "sitecustomize.py").write_text(CLOCK)
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("CLOCK_AHEAD", str(ahead))
    durations = Durations.short()
    await env.add_nodes(3)
    with env.supervisor(*ALL_CONTROLLERS, *durations.flags()) as supervisor:
        await env.nodes.until_initialized(3)
        await until("it leads", supervisor.is_leading)
        main = supervisor.process.pid
        processes = [main, *children_of(main)]
        async with asleep(processes):
            await env.add_nodes(3, first=4)
            await env.add_services(1)
            await asyncio.sleep(60 if IS_LONG else 1.5 * durations.lease)
            ahead.write_text("3600")
        began = time.monotonic()
        await env.nodes.until_initialized(6)
        await env.until_served(1)
        print(f"right after {time.monotonic() - began:.1f} s")
        assert supervisor.is_leading()
        assert supervisor.end() == 0


@asynccontextmanager
async def asleep(processes: list[int]) -> AsyncIterator[None]:
    """None of them runs; the one that watches the others is the first to sleep."""
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class OnlySix(Supervisor):
    """In a network without IPv4, where the API server and the cloud are at ports of ::1."""

    def __init__(self, env: Environment) -> None:
        self._ports = [urlsplit(url).port for url in (env.cluster.url, env.cloud.url)]
        kubeconfig = yaml.safe_load(env.where.kubeconfig.read_text())
        cluster = kubeconfig["clusters"][0]["cluster"]
        cluster["server"] = _six(cluster["server"])
        cluster["tls-server-name"] = "127.0.0.1"
        files = env.directory / "six.kubeconfig", env.directory / "six.conf"
        files[0].write_text(json.dumps(kubeconfig))
        files[1].write_text(_six(env.where.cloud_config.read_text()))
        where = replace(env.where, kubeconfig=files[0], cloud_config=files[1])
        super().__init__(where, f"--secure-port={HTTPS}", name="six")

    def command(self, arguments: list[str]) -> list[str]:
        ports = map(str, self._ports)
        return [
            sys.executable,
            "-m",
            "tests.support.only_six",
            *ports,
            "--",
            *super().command(arguments),
        ]

    def get(self, path: str) -> str:
        """What its HTTPS port answers at ::1, in its own network."""
        url = f"https://[::1]:{HTTPS}{path}"
        enter = ("nsenter", f"--net=/proc/{self.process.pid}/ns/net", "curl", "-sk", url)
        return subprocess.run(enter, capture_output=True, text=True, check=False).stdout


def _six(text: str) -> str:
    return text.replace("127.0.0.1", "[::1]")


async def test_a_host_without_ipv4_has_all_that_others_have(env: Environment) -> None:
    missing = why_no_namespaces("ip", "util-linux iproute2") or why_no_namespaces("curl", "curl")
    needed(not missing, missing)
    await env.add_nodes(3)
    with OnlySix(env) as supervisor:
        await env.nodes.until_initialized(3)
        await until("it is ready", lambda: supervisor.get("/readyz") == "ok")
        worker = supervisor.pids()["node-0"]
        os.kill(worker, signal.SIGKILL)
        await until("it is back", lambda: supervisor.is_replaced("node-0", worker))
        assert supervisor.end() == 0
