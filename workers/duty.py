"""What a duty is to the runner: the objects it wants and one reconcile a key."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ccm.bus.frames import Message
from ccm.cloud.interface import CloudProvider
from ccm.decide.backoff import Backoff
from ccm.kube.events import ObjectRef, Recorder
from ccm.model.objects import Json
from ccm.model.projection import Want
from ccm.settings import Settings
from ccm.tally import Tally
from workers.apply import Performer
from workers.caution import Caution
from workers.queue import WorkQueue
from workers.store import Store


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one reconcile decided, as a sentence for logs and `status`, and what comes next.

    `is_settled`: nothing is left to do until the object changes. `again_in`: seconds until another
    look; None waits for a change or for whoever was asked.
    """

    sentence: str
    is_settled: bool = True
    again_in: float | None = None


@dataclass(frozen=True, slots=True)
class Tools:
    """What the runner gives a duty to work with."""

    settings: Settings
    provider: CloudProvider
    store: Store
    queue: WorkQueue
    caution: Caution
    performer: Performer
    recorder: Recorder
    tell: Callable[[Message], bool]  # to the supervisor
    tally: Tally = field(default_factory=Tally)


class Duty(Protocol):
    """One controller. It is built from `Tools` by the function `duty` of its package's worker."""

    def keys_for(self, kind: str, key: str) -> Iterable[str]:
        """The keys to reconcile when this object changed."""
        ...

    async def reconcile(self, key: str) -> Outcome:
        """Bring one key to where it should be; an error is retried with back-off."""
        ...

    async def run(self) -> None:
        """Work beside the queue, until cancelled."""
        ...

    def hear(self, message: Message) -> None:
        """What the supervisor says to this duty alone."""
        ...

    def about(self, key: str) -> ObjectRef | None:
        """The object behind a key, for Events."""
        ...

    def facts(self) -> Json:
        """What `status` shows of this duty."""
        ...

    def evidence(self, key: str) -> Json:
        """What a decision about this key is based on, for `explain`: short texts by name."""
        ...


class DutyModule(Protocol):
    """What `workers.<duty>.worker` has to contain."""

    COMPONENT: str
    WANTS: tuple[Want, ...]
    BACKOFF: Backoff

    def duty(self, tools: Tools) -> Duty | None:
        """A new duty for this process; None when the provider has nothing for it."""
        ...

    def concurrency(self, settings: Settings) -> int:
        """How many keys are in hand at the same time."""
        ...
