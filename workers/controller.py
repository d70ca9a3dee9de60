"""What a controller is to the runner: the objects it subscribes to and one reconcile a key."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ccm.bus.frames import Message
from ccm.cloud.interface import CloudProvider
from ccm.counters import Counters
from ccm.decide.backoff import Backoff
from ccm.kube.events import EventRecorder, ObjectRef
from ccm.model.objects import Json, Projection
from ccm.settings import Settings
from workers.cloud_changes import CloudChanges
from workers.executor import KeyExecutor
from workers.performer import Performer
from workers.queue import WorkQueue
from workers.store import MachineHolders, Store
from workers.timings import Timings


@dataclass(frozen=True, slots=True)
class Result:
    """How one reconcile ended (controller-runtime: `reconcile.Result`).

    `message` is one sentence for logs, `status` and `explain`. `is_done`: nothing is left to do
    until the object changes. `requeue_after`: seconds until the next reconcile; None waits for a
    change.
    """

    message: str
    is_done: bool = True
    requeue_after: float | None = None


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """What a controller works with, as upstream's; `send` goes to the supervisor."""

    settings: Settings
    provider: CloudProvider
    store: Store
    queue: WorkQueue
    executor: KeyExecutor
    performer: Performer
    recorder: EventRecorder
    send: Callable[[Message], bool]
    counters: Counters = field(default_factory=Counters)
    timings: Timings = Timings()
    changes: CloudChanges = field(default_factory=CloudChanges)

    def machine_holders(self) -> MachineHolders:
        """None yet; machines are distinguished as the provider reads provider IDs of its cloud."""
        part, is_ours = self.provider.instances, self.provider.provider_ids.fullmatch
        return MachineHolders(part.machine_of if part else str, is_ours)


class NotNeeded(Exception):
    """There is nothing for a controller to do in this process; the text says why."""


class Controller(Protocol):
    """One controller, built by `new_controller` of `workers.<name>.controller`."""

    def map_to_keys(self, kind: str, key: str) -> Iterable[str]:
        """The keys to reconcile when this object was added, changed or deleted."""
        ...

    async def reconcile(self, key: str) -> Result:
        """Bring one key to where it should be; an exception is retried with back-off."""
        ...

    async def run(self) -> None:
        """Periodic work beside the queue, until cancelled."""
        ...

    def on_message(self, message: Message) -> None:
        """A message from the supervisor that is for this controller alone."""
        ...

    def object_ref(self, key: str) -> ObjectRef | None:
        """The object behind a key, for Events; None when the key is not one object."""
        ...

    def status(self) -> Json:
        """What `ccm-supervisor status` shows of this controller."""
        ...

    def details(self, key: str) -> Json:
        """What a decision about this key is based on, for `explain`: short texts by name."""
        ...


class ControllerModule(Protocol):
    """What `workers.<name>.controller` contains.

    The module of a provider's own controller has its `PolicyRule`s in `POLICY_RULES`, a tuple, and
    may have `faults`, which finds what is wrong with its `Settings`. A start imports it for these.
    """

    COMPONENT: str
    """Source of its Events and last part of its user agent, as upstream names it."""
    PROJECTIONS: tuple[Projection, ...]
    """The kinds it watches, cut down to the fields it reads."""
    BACKOFF: Backoff
    """Of a key that failed."""

    def new_controller(self, context: ControllerContext) -> Controller:
        """The controller of this process; raises `NotNeeded`."""
        ...

    def concurrency(self, settings: Settings) -> int:
        """How many keys are reconciled at the same time."""
        ...
