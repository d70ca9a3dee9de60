"""Worker processes that hammer a limited cloud through real gates, and what came of it."""

import asyncio
import contextlib
import os
import random
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import multiprocess
import orjson

from ccm.bus.frames import CloudThrottled, Granted, GrantRequest, Heartbeat, Hello, Message
from ccm.bus.sockets import Hub, Port
from ccm.cloud.gate import SupervisorGrants, WorkerGate, with_priority
from ccm.cloud.interface import ProviderContext
from ccm.decide.budget import Priority
from ccm.errors import CloudError
from ccm.model.objects import Json
from ccm.processes import die_with_parent
from ccm.providers.simulated.api import SimulatedApi
from ccm.providers.simulated.config import read_config
from ccm.providers.simulated.provider import SimulatedCloud
from ccm.supervisor.budget import Budget
from ccm.supervisor.worker_messages import RESPONSIVE_WITHIN
from workers.runner import HEARTBEAT_INTERVAL

Waits = dict[tuple[str, Priority], list[float]]  # by worker and priority

REFRESHERS = 4  # per worker


class Timed:
    """A grant source that writes a line of JSON per call: when, priority, seconds of waiting."""

    def __init__(self, grants: SupervisorGrants, path: Path) -> None:
        self._grants = grants
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - as long as the process lives

    async def take(self, budget: str, priority: Priority) -> float:
        began = time.monotonic()
        granted = await self._grants.take(budget, priority)
        now = time.monotonic()
        self._file.write(orjson.dumps([now, int(priority), now - began]) + b"\n")
        return granted

    def throttled(self, budget: str, seconds: float | None, granted: float) -> None:
        self._grants.throttled(budget, seconds, granted)

    def remaining(self, budget: str, calls: int, seconds: float) -> None:
        self._grants.remaining(budget, calls, seconds)


def enter(name: str, config: Path, parent: int, pause: float) -> None:
    """The first code of a hammering process; its waits go into a file beside `config`."""
    die_with_parent(parent)
    asyncio.run(_hammer(name, config, pause))


async def _hammer(name: str, config: Path, pause: float) -> None:
    def on_message(message: Message) -> None:
        if isinstance(message, Granted):
            grants.on_granted(message)

    async def beat() -> None:
        while port.send(Heartbeat({})):  # noqa: ASYNC110 - nothing to wait for
            await asyncio.sleep(HEARTBEAT_INTERVAL)

    port = Port(config.with_name("bus.sock"), f"{name}.1", lambda token: None)
    port.on_message = on_message
    grants = SupervisorGrants(port.send)
    timed = Timed(grants, config.with_name(f"{name}.waits"))
    gate = WorkerGate(timed, 10.0, lambda: None)
    content, provider = config.read_bytes(), SimulatedCloud()
    await provider.initialize(ProviderContext(gate, content, str(config), "test", name))
    quotas = {name: [quota.per_second, quota.burst] for name, quota in provider.quotas.items()}
    port.send(Hello([], quotas))
    api = SimulatedApi(read_config(content, str(config)), gate, name)
    controllers = [_work(api, priority, pause) for priority in Priority]
    refreshing = [_work(api, Priority.REFRESH, 0.0) for _ in range(REFRESHERS)]
    await asyncio.gather(port.run(), beat(), *controllers, *refreshing)


async def _work(api: SimulatedApi, priority: Priority, pause: float) -> None:
    while True:
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))
        with with_priority(priority), contextlib.suppress(CloudError):
            await api.machines("names", ["nobody"])


class Hammers:
    """A supervisor's hub and budget, and worker processes by name. All in the running loop.

    A controller pauses for `pause` seconds between two calls; refreshing never does.
    """

    def __init__(self, config: Path, pause: float) -> None:
        self._directory, self._config, self._pause = config.parent, config, pause
        self._hub = Hub(self._directory / "bus.sock")
        self._heard_at: dict[str, float] = {}
        self.budget = Budget({}, self._hub.send, self._is_responsive)
        self.processes: dict[str, Any] = {}
        self._receiving = asyncio.create_task(self._hub.run(self._on_message))

    def start(self, names: list[str]) -> None:
        context = multiprocess.get_context("spawn")
        for name in names:
            arguments = (name, self._config, os.getpid(), self._pause)
            process = self.processes[name] = context.Process(target=enter, args=arguments)
            process.start()
            self._hub.admit(f"{name}.1", process.pid)

    def read(self) -> Json:
        """What `status` would say of reads."""
        return {**self.budget.status(time.monotonic()).get("read", {})}

    def kill(self, name: str) -> None:
        """End a worker the hard way and do what the supervisor does when it sees the end."""
        process = self.processes.pop(name)
        process.kill()
        process.join()
        self._hub.dismiss(f"{name}.1")
        self.budget.forget(f"{name}.1")

    async def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.join()
        self._receiving.cancel()
        await asyncio.gather(self._receiving, return_exceptions=True)
        self._hub.close()

    def waits(self, since: float) -> Waits:
        """Seconds that calls waited, by worker and priority, of those granted after `since`."""
        found: Waits = defaultdict(list)
        for path in self._directory.glob("*.waits"):
            for at, priority, seconds in map(orjson.loads, path.read_bytes().splitlines()):
                if at >= since:
                    found[path.stem, Priority(priority)].append(seconds)
        return found

    def _is_responsive(self, ident: str) -> bool:
        return time.monotonic() - self._heard_at.get(ident, 0.0) < RESPONSIVE_WITHIN

    def _on_message(self, ident: str, message: Message) -> None:
        self._heard_at[ident] = time.monotonic()
        match message:
            case Hello():
                self.budget.declare(message.quotas)
            case GrantRequest():
                self.budget.request(ident, message)
            case CloudThrottled():
                self.budget.slow_down(ident, message)


@dataclass(frozen=True, slots=True)
class CallCounts:
    """What the cloud saw of reads between two times (monotonic)."""

    accepted: int
    throttled: int
    seconds: float
    callers: Counter[str]

    @classmethod
    def between(cls, requests: list[Json], begin: float, end: float) -> "CallCounts":
        calls = [request for request in requests if begin <= request["monotonic"] < end]
        refused = sum(call["status"] == 429 for call in calls)
        callers = Counter(call["caller"] for call in calls)
        return cls(len(calls) - refused, refused, end - begin, callers)

    @property
    def throttled_share(self) -> float:
        return self.throttled / max(self.accepted + self.throttled, 1)

    def use_of(self, per_second: float) -> float:
        return self.accepted / (per_second * self.seconds)
