"""A controller's context and runner without processes: the supervisor's end is the test itself."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

from ccm.bus.frames import Hello, Message
from ccm.bus.in_flight import InFlightJournal
from ccm.bus.sockets import Permission
from ccm.cloud.gate import SupervisorGrants
from ccm.kube.client import Kube
from ccm.kube.events import EventRecorder
from ccm.settings import Settings
from workers.controller import Controller, ControllerContext, ControllerModule
from workers.performer import Performer
from workers.quarantine import Quarantine
from workers.queue import WorkQueue
from workers.runner import Connection, Runner
from workers.store import Store

SETTINGS = Settings(cloud_provider="fake")


class FakePort:
    """A worker's end of the bus with a valid permission; `sent` is what it said, in order.

    A message that `handler` answers with False was not taken.
    """

    def __init__(self, handler: Callable[[Message], object] = lambda _: None) -> None:
        self._handler = handler
        self.sent: list[Message] = []
        self.permission = Permission()
        self.permission.renew(float("inf"))

    def send(self, message: Message) -> bool:
        self.sent.append(message)
        return self._handler(message) is not False


def journal() -> InFlightJournal:
    """An in-flight journal that leaves no file behind."""
    with TemporaryDirectory() as directory:
        return InFlightJournal(Path(directory) / "journal")


def new_quarantine(
    port: FakePort, limit: int = 1000, *suspects: str, record: InFlightJournal | None = None
) -> Quarantine:
    """A quarantine of these suspects, none of which has to wait."""
    return Quarantine(record or journal(), port.send, suspects, {}, limit)


def controller_context(
    module: Any,
    provider: object,
    kube: object,
    port: FakePort,
    settings: Settings = SETTINGS,
    quarantine: Quarantine | None = None,
) -> ControllerContext:
    """What a controller of `workers.<name>.controller` works with; `kube` takes its writes."""
    parts = cast(ControllerModule, module)
    client = cast(Kube, kube)
    return ControllerContext(
        settings=settings,
        provider=cast(Any, provider),
        store=Store(parts.PROJECTIONS),
        queue=WorkQueue(parts.BACKOFF),
        quarantine=quarantine or new_quarantine(port, parts.concurrency(settings)),
        performer=Performer(client, port.permission, grace=5.0),
        recorder=EventRecorder(client, parts.COMPONENT, "worker-0"),
        send=port.send,
    )


def new_runner(
    context: ControllerContext, controller: Controller, port: FakePort, gate: object = None
) -> Runner:
    """The runner of this controller; its gate counts no calls unless there is one."""
    gate = gate or SimpleNamespace(calls={})
    grants = SupervisorGrants(port.send)
    return Runner(Connection(cast(Any, port), grants, cast(Any, gate)), context, controller)


def hello(module: Any) -> Hello:
    """What a worker of this controller asks the supervisor for."""
    projections = cast(ControllerModule, module).PROJECTIONS
    return Hello([{"kind": one.kind, "paths": one.paths} for one in projections], {})
