"""The service worker in this process, between a Kubernetes API server and the simulated cloud."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

from workers.grants import Grants

from ccm.bus.frames import Ack, Hello, Message, Resync, decode
from ccm.bus.in_flight import InFlightJournal
from ccm.bus.sockets import Permission
from ccm.cloud.gate import WorkerGate
from ccm.cloud.interface import ProviderContext
from ccm.decide.budget import Priority
from ccm.kube import config
from ccm.kube.client import Kube
from ccm.kube.events import EventRecorder
from ccm.providers.simulated.provider import SimulatedCloud
from ccm.sandbox.cloud.server import CloudServer
from ccm.settings import Settings
from ccm.supervisor.informer import SharedInformer
from workers.controller import Controller, ControllerContext
from workers.performer import Performer
from workers.quarantine import Quarantine
from workers.queue import WorkQueue
from workers.runner import Runner, Ties
from workers.service.controller import BACKOFF, COMPONENT, PROJECTIONS, new_controller
from workers.store import Store


class GrantSource:
    """Grants everything at once."""

    async def take(self, budget: str, priority: Priority) -> float:
        return time.monotonic()

    def throttled(self, budget: str, seconds: float | None, granted: float) -> None:
        return


@dataclass
class Worker:
    """One start of the worker."""

    controller: Controller
    queue: WorkQueue
    runner: Runner
    gate: WorkerGate

    def is_idle(self) -> bool:
        return not len(self.queue) and not self.queue.oldest_in_flight(
            asyncio.get_running_loop().time()
        )


@asynccontextmanager
async def started(kubeconfig: Path, cloud: CloudServer) -> AsyncIterator[Worker]:
    """A worker with a feed of its own, until the end of the block."""
    kube = Kube(await config.load(config.Source(str(kubeconfig))), "service-worker")
    gate = WorkerGate(GrantSource(), 10.0, lambda: None)
    provider = SimulatedCloud()
    text = f"[Global]\nurl={cloud.url}\ntoken={cloud.tokens.full}\n"
    await provider.initialize(ProviderContext(gate, text.encode(), "", "test", "service"))
    feeds: list[SharedInformer] = []

    def send(message: Message) -> bool:
        """The supervisor's ear."""
        if isinstance(message, Ack):
            feeds[0].acknowledge("service", message.seq)
        if isinstance(message, Resync):
            feeds[0].begin_again("service")
        return True

    permission = Permission()
    permission.renew(float("inf"))
    with TemporaryDirectory() as directory:
        hand = InFlightJournal(Path(directory) / "service.1.hand")
        context = ControllerContext(
            settings=Settings(cloud_provider="simulated", cluster_name="test"),
            provider=provider,
            store=Store(PROJECTIONS),
            queue=WorkQueue(BACKOFF),
            quarantine=Quarantine(hand, send, (), {}),
            performer=Performer(kube, permission, grace=5.0),
            recorder=EventRecorder(kube, COMPONENT, "service"),
            send=send,
        )
        made = new_controller(context)
        assert made
        port: Any = SimpleNamespace(send=send, permission=permission)
        runner = Runner(Ties(port, cast(Grants, None), gate), context, made)

        def deliver(worker: str, frame: bytes) -> bool:
            asyncio.get_running_loop().call_soon(runner.on_message, decode(frame))
            return True

        hello = Hello([{"kind": want.kind, "paths": want.paths} for want in PROJECTIONS], {})
        feeds.append(SharedInformer(kube, deliver))
        work = asyncio.create_task(runner.run(hello, 4))
        feeds[0].join("service", hello, lambda kind, key: True)
        try:
            yield Worker(made, context.queue, runner, gate)
        finally:
            await feeds[0].close()
            runner.drain(2.0)
            await work
            hand.close()
            await provider.close()
            await kube.close()
