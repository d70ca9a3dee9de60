"""A controller's context and runner without processes: the supervisor's end is the test itself."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

from ccm.bus.frames import Ack, Hello, Message, Objects, Resync, decode
from ccm.bus.in_flight import InFlightJournal
from ccm.bus.sockets import Permission
from ccm.cloud.gate import SupervisorGrants
from ccm.kube.client import Kube
from ccm.kube.events import EventRecorder
from ccm.settings import Settings
from ccm.supervisor.informer import SharedInformer
from workers.controller import Controller, ControllerContext, ControllerModule
from workers.executor import KeyExecutor
from workers.performer import Performer
from workers.queue import WorkQueue
from workers.runner import Connection, Runner
from workers.store import Store
from workers.timings import Timings

SETTINGS = Settings(cloud_provider="fake")
TIMINGS = Timings(
    node_debounce=0.02,
    route_list_interval=0.0,
    incomplete_route_list_retry=0.0,
    echo=0.0,
    refusal_retry_period=600.0,
)
"""Quick where tests would wait."""
NAME = "worker-0"

Entry = list[Any]  # kind, key, version, value


def frame(seq: int, *entries: Entry, epoch: int = 1, complete: bool = False) -> Objects:
    """A frame of the informer."""
    return Objects.of(epoch, seq, complete, entries)


def snapshot(*entries: Entry, epoch: int = 1) -> Objects:
    """A snapshot that fits one frame."""
    return frame(1, *entries, epoch=epoch, complete=True)


class FakePort:
    """A worker's end of the bus with a valid permission; `sent` is what it said, in order.

    A message that `handler` answers with False was not taken.
    """

    def __init__(self, handler: Callable[[Message], object] = lambda _: None) -> None:
        self.handler = handler
        self.sent: list[Message] = []
        self.permission = Permission()
        self.permission.renew(float("inf"))

    def send(self, message: Message) -> bool:
        self.sent.append(message)
        return self.handler(message) is not False


def journal() -> InFlightJournal:
    """An in-flight journal that leaves no file behind."""
    with TemporaryDirectory() as directory:
        return InFlightJournal(Path(directory) / "journal")


def new_executor(
    port: FakePort, limit: int = 1000, record: InFlightJournal | None = None
) -> KeyExecutor:
    """An executor that suspects nobody."""
    return KeyExecutor(record or journal(), port.send, {}, limit)


def controller_context(
    module: Any,
    provider: object,
    kube: object,
    port: FakePort,
    settings: Settings = SETTINGS,
    executor: KeyExecutor | None = None,
    timings: Timings = TIMINGS,
    queue: WorkQueue | None = None,
) -> ControllerContext:
    """What a controller of `workers.<name>.controller` works with; `kube` takes its writes."""
    parts = cast(ControllerModule, module)
    client = cast(Kube, kube)
    return ControllerContext(
        settings=settings,
        provider=cast(Any, provider),
        store=Store(parts.PROJECTIONS),
        queue=WorkQueue(parts.BACKOFF) if queue is None else queue,
        executor=executor or new_executor(port, parts.concurrency(settings)),
        performer=Performer(client, port.permission, grace=5.0),
        recorder=EventRecorder(client, parts.COMPONENT, NAME),
        send=port.send,
        timings=timings,
    )


def hello(module: Any) -> Hello:
    """What a worker of this controller asks the supervisor for."""
    projections = cast(ControllerModule, module).PROJECTIONS
    return Hello([{"kind": one.kind, "paths": one.paths} for one in projections], {})


@asynccontextmanager
async def running(
    module: Any,
    context: ControllerContext,
    controller: Controller,
    port: FakePort,
    gate: object = None,
) -> AsyncIterator[tuple[Runner, "asyncio.Task[None]"]]:
    """The controller under its runner until the end of the block; no `gate` counts no calls."""
    gate = gate or SimpleNamespace(calls={}, outage=dict)
    connection = Connection(cast(Any, port), SupervisorGrants(port.send), cast(Any, gate))
    runner = Runner(connection, context, controller)
    work = asyncio.create_task(runner.run(hello(module)))
    try:
        yield runner, work
    finally:
        runner.drain(1.0)
        await work


@asynccontextmanager
async def informed(
    kube: Kube,
    module: Any,
    context: ControllerContext,
    controller: Controller,
    port: FakePort,
    gate: object = None,
) -> AsyncIterator[tuple[SharedInformer, Runner]]:
    """As `running`, with a supervisor's informer on an API server; the port handles the rest."""
    handle = port.handler

    def on_message(message: Message) -> object:
        match message:
            case Ack(epoch, seq):
                informer.acknowledge(NAME, epoch, seq)
            case Resync():
                informer.resync(NAME)
            case _:
                return handle(message)
        return None

    def deliver(worker: str, data: bytes) -> bool:
        asyncio.get_running_loop().call_soon(runner.on_message, decode(data))
        return True

    informer = SharedInformer(kube, deliver)
    port.handler = on_message
    async with running(module, context, controller, port, gate) as (runner, _):
        informer.subscribe(NAME, hello(module), lambda kind, key: True)
        try:
            yield informer, runner
        finally:
            await informer.close()
