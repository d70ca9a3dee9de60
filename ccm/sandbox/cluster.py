"""A running sandbox: its components, its nodes, and the summary of a run."""

import asyncio
import fcntl
import os
import shutil
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from errno import ENOTEMPTY
from pathlib import Path
from typing import Any, Self, TextIO

import aiohttp
import orjson

from ccm.bus.control import NotRunning, ask
from ccm.bus.paths import RuntimePaths
from ccm.directories import make_private, no_follow
from ccm.errors import CloudError, ConfigurationFault, KubernetesError, Unreachable
from ccm.kube import config
from ccm.kube.client import Kube
from ccm.model.conform import conform
from ccm.model.objects import Json
from ccm.model.status import Status
from ccm.sandbox import components, workload
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.records import Power
from ccm.sandbox.components import SandboxEndpoints, SandboxPaths
from ccm.sandbox.kubelets import follow_power, new_machines, register
from ccm.sandbox.observer import NodeObserver, percentile

NODE_AGENT = "ccm-supervisor/cloud-node-controller"


@dataclass(frozen=True, slots=True)
class SandboxOptions:
    """How large a sandbox is; `stagger` is seconds between two registrations."""

    directory: str
    nodes: int
    node_workers: int
    stagger: float = 0.0


class Sandbox:
    """`async with Sandbox(options) as sandbox:` starts every component and stops all of them."""

    def __init__(self, options: SandboxOptions) -> None:
        self.options = options
        self.paths = SandboxPaths(Path(options.directory).absolute())
        self.power: dict[str, Power] = {}
        self.workload = workload.WorkloadStatus()
        self.settled = asyncio.Event()  # it was, at least once
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._stack.enter_context(_lock_directory(self.paths))
        self._stack.callback(self.paths.endpoints.unlink, missing_ok=True)
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        kubernetes, self._kubernetes_url = await components.start_kubernetes(self.paths)
        self._stack.push_async_callback(kubernetes.stop)
        cloud, cloud_url = await components.start_cloud(self.paths)
        self._stack.push_async_callback(cloud.stop)
        source = str(self.paths.kubeconfig)
        self.kube = Kube(await config.load(source), "sandbox-kubelets")
        self._stack.push_async_callback(self.kube.close)
        self.cloud = await self._stack.enter_async_context(CloudAdmin(cloud_url))
        self._machines = await self.cloud.add(new_machines(1, self.options.nodes))
        self.observer = NodeObserver(self.kube)
        self._in_background(self.observer.run())
        port = self._stack.enter_context(components.reserve_port()).getsockname()[1]
        self._supervisor = await components.start_supervisor(
            self.paths, self.options.node_workers, port
        )
        self._stack.push_async_callback(self._supervisor.stop)
        page_url = f"https://127.0.0.1:{port}/"
        self.endpoints = SandboxEndpoints(os.getpid(), self._kubernetes_url, cloud_url, page_url)
        components.write_environment(self.paths)
        self.paths.endpoints.write_bytes(orjson.dumps(self.endpoints))
        await self._wait_for_supervisor()
        self._in_background(self._follow_power())
        self._in_background(self._follow_workload())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)

        async def end() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self._stack.push_async_callback(end)

    async def _wait_for_supervisor(self) -> None:
        """Until its workers are up: what a node then waits for is their work, not their start."""
        deadline = asyncio.get_running_loop().time() + components.START_TIMEOUT
        while not _is_up(await self.status()):
            self._supervisor.check()
            if asyncio.get_running_loop().time() > deadline:
                raise ConfigurationFault(
                    "sandbox supervisor", "has not come up", f"see {self._supervisor.log}"
                )
            await asyncio.sleep(0.05)

    async def _follow_power(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            try:
                await self._follow_machines()
            except (KubernetesError, Unreachable, CloudError):
                continue  # a fault that someone set on purpose; look again in a second

    async def _follow_machines(self) -> None:
        """Kubelets live while their machines run, and register once in their life.

        So a Node that someone deleted comes back when its machine starts again.
        """
        nodes = list(self.observer.nodes)
        before, self.power = self.power, await follow_power(self.kube, self.cloud, nodes)
        started = [name for name, power in self.power.items() if before.get(name, power) != power]
        returning = [name for name in started if self.power[name] is Power.RUNNING]
        await register(self.kube, [name for name in returning if name not in nodes])

    async def _follow_workload(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(0.25)

    async def look(self) -> None:
        """See what the workload has now; what cannot be asked is as it was."""
        with suppress(KubernetesError, Unreachable, CloudError):
            self.workload = await workload.observe(self.kube, self.cloud)
        if self.is_settled:
            self.settled.set()

    @property
    def is_settled(self) -> bool:
        """Whether every node is ready and the workload has what it asked for."""
        seen, count = self.workload, self.options.nodes
        has_backends = len(seen.service_backends) >= count and len(seen.routed) >= count
        has_all = bool(seen.service_address and seen.volume_zone) and has_backends
        return has_all and self.observer.is_settled(count)

    def check(self) -> None:
        """Raise `ConfigurationFault` when the supervisor has ended."""
        self._supervisor.check()

    async def add_nodes(self) -> None:
        """Ask for a Service and a volume, and let the kubelets of the machines register."""
        await workload.create(self.kube, self.cloud)
        names = [machine.name for machine in self._machines]
        await register(self.kube, names, self.options.stagger)

    async def status(self) -> Status | None:
        """The supervisor's own status; None while it does not answer."""
        control = RuntimePaths(self.paths.runtime).control
        try:
            answer = await asyncio.to_thread(ask, control, {"command": "status"}, 2.0)
        except NotRunning:
            return None
        return None if "error" in answer else conform(Status, answer)

    async def summary(self, is_settled: bool) -> Json:
        """What a run cost and how long it took, as the servers counted it."""
        requests = await self._audit_log()
        writes = [r for r in requests if r["user_agent"] == NODE_AGENT and r["verb"] == "patch"]
        delays = self.observer.delays()
        counters = await self.cloud.counters()
        status = await self.status()
        return {
            "settled": is_settled,
            "nodes": len(self.observer.nodes),
            "initialized": len(delays),
            "kubernetes_writes_per_node": round(len(writes) / max(len(delays), 1), 3),
            "kubernetes_events": sum(r["resource"] == "events" for r in requests),
            "cloud_reads": sum(
                row["count"] for row in counters["rows"] if row["operation"] == "ListMachines"
            ),
            "service_address": self.workload.service_address,
            "service_backends": len(self.workload.service_backends),
            "routes": len(self.workload.routed),
            "volume_zone": self.workload.volume_zone,
            "seconds_to_ready": {"p50": percentile(delays, 0.5), "p99": percentile(delays, 0.99)},
            "worker_restarts": sum(w["restarts"] for w in status["workers"]) if status else 0,
            "not_ready": self.observer.unready()[:20],
        }

    async def _audit_log(self) -> list[Json]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self._kubernetes_url}/sandbox/requests") as response,
        ):
            log: list[Json] = orjson.loads(await response.read())
        return log


def _is_up(status: Status | None) -> bool:
    workers = status["workers"] if status else []
    return bool(workers) and all(w["state"] not in ("starting", "syncing") for w in workers)


def _lock_directory(paths: SandboxPaths) -> TextIO:
    """An empty directory that no other sandbox uses; what an earlier one left there goes."""
    directory, mark = paths.directory, paths.directory / "lock"
    try:
        if directory.is_dir() and any(directory.iterdir()) and not mark.exists():
            raise OSError(ENOTEMPTY, "it has files that no sandbox wrote")
        make_private(directory)
        lock = open(mark, "w", encoding="ascii", opener=no_follow)  # noqa: SIM115 - held to the end
    except OSError as error:
        problem = f"{directory} cannot be used: {error.strerror}"
        raise ConfigurationFault("--directory", problem, "name a new or empty one") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise ConfigurationFault(
            "--directory",
            f"{directory} is used by a sandbox that runs",
            "stop that one with Ctrl-C, or name another directory",
        ) from error
    for entry in directory.iterdir():
        if entry != mark:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    return lock
