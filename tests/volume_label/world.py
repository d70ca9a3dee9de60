"""A volume-label duty with everything around it in memory: a cluster and a cloud of volumes."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from ccm.bus.frames import Message
from ccm.bus.in_flight import InFlightJournal
from ccm.bus.sockets import Permission
from ccm.cloud.gate import WorkerGate
from ccm.cloud.interface import CloudProvider
from ccm.decide.budget import Priority
from ccm.errors import KubernetesError
from ccm.kube.client import JSON_PATCH, Kube
from ccm.kube.events import EventRecorder
from ccm.model.cloud import PlaceAnswer
from ccm.model.objects import Json
from ccm.model.projection import project
from ccm.model.volume import PersistentVolume
from ccm.settings import Settings
from tests.unit.cluster import patched
from tests.unit.feeding import snapshot
from tests.unit.waiting import PATIENCE
from workers.controller import Controller, ControllerContext, Result
from workers.performer import Performer
from workers.quarantine import Quarantine
from workers.queue import WorkQueue
from workers.store import Store
from workers.volume_label import controller as worker
from workers.volume_label.controller import COMPONENT, PROJECTIONS

from .volumes import DRIVER

LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


class Cluster:
    """An API server of PersistentVolumes and Events, with the rules that matter here."""

    def __init__(self) -> None:
        self._volumes: dict[str, Json] = {}
        self._version = 100
        self.events: list[Json] = []
        self.tries = self.writes = 0
        self.refusal: KubernetesError | None = None  # of every write

    def put(self, volume: PersistentVolume) -> None:
        """Create the volume, or replace it as somebody else would."""
        self._version += 1
        raw = self._volumes[volume.name] = deepcopy(volume.raw)
        raw["metadata"]["resourceVersion"] = str(self._version)

    def remove(self, name: str) -> None:
        del self._volumes[name]

    def get(self, name: str = "pv-1") -> PersistentVolume:
        return PersistentVolume(deepcopy(self._volumes[name]))

    def names(self) -> list[str]:
        return list(self._volumes)

    async def patch(self, path: str, kind: str, body: Any, timeout: float = 30.0) -> Json:
        assert kind == JSON_PATCH
        self.tries += 1
        if self.refusal:
            raise self.refusal
        name = path.removeprefix("/api/v1/persistentvolumes/")
        if name not in self._volumes:
            raise KubernetesError(404, "NotFound", f"{name} not found", None)
        new = patched(self._volumes[name], body)
        _check(self._volumes[name], new)
        self.writes += 1
        self.put(PersistentVolume(new))
        return deepcopy(self._volumes[name])

    async def post(self, path: str, body: Json, timeout: float = 30.0) -> Json:
        assert path == "/api/v1/namespaces/default/events"
        self.events.append(body)
        return body


def _check(old: Json, new: Json) -> None:
    affinity = old["spec"].get("nodeAffinity")
    if affinity and new["spec"].get("nodeAffinity") != affinity:
        raise KubernetesError(422, "Invalid", "nodeAffinity: field is immutable", None)
    if not all(LABEL.fullmatch(value) for value in new["metadata"].get("labels", {}).values()):
        raise KubernetesError(422, "Invalid", "metadata.labels: invalid value", None)


class GrantSource:
    """Grants every call, and keeps at which priority it was asked for."""

    def __init__(self) -> None:
        self.priorities: list[Priority] = []

    async def take(self, budget: str, priority: Priority) -> float:
        self.priorities.append(priority)
        return 0.0

    def throttled(self, budget: str, seconds: float | None, granted: float) -> None:
        return


class Places:
    """The volumes part of a cloud: what it says of each volume, and the reads it was asked for."""

    csi_drivers = frozenset({DRIVER})
    legacy_sources = frozenset({"cinder"})
    batch_size = 100

    def __init__(self) -> None:
        self.answers: dict[str, PlaceAnswer] = {}
        self.failures: list[Exception] = []  # what the next reads end with
        self.reads: list[list[str]] = []
        self.grants = GrantSource()
        self.check: Callable[[], None] = lambda: None
        self._gate = WorkerGate(self.grants, timeout=PATIENCE, check=lambda: self.check())

    async def describe(self, volumes: Sequence[PersistentVolume]) -> Mapping[str, PlaceAnswer]:
        names = [volume.name for volume in volumes]
        return await self._gate.call("ListVolumes", "read", lambda: self._look_up(names))

    async def _look_up(self, names: list[str]) -> Mapping[str, PlaceAnswer]:
        self.reads.append(names)
        if self.failures:
            raise self.failures.pop(0)
        return {name: self.answers[name] for name in names if name in self.answers}


class Cloud:
    """A provider with volumes and nothing else."""

    name = scheme = "fake"

    def __init__(self, volumes: Places) -> None:
        self.volumes: Places | None = volumes


class World:
    """One controller. `feed` stands for the supervisor, `sync` for the runner."""

    def __init__(
        self, hand: InFlightJournal, kube: Kube, suspects: tuple[str, ...], **flags: Any
    ) -> None:
        self.places = Places()
        self.cloud = Cloud(self.places)
        self.queue, self.store = WorkQueue(), Store(PROJECTIONS)
        self.permission = Permission()
        self.permission.renew(float("inf"))
        self.places.check = self.permission.check
        self.recorder = EventRecorder(kube, COMPONENT, "volume-label")
        self.context = ControllerContext(
            settings=Settings(cloud_provider="fake", **flags),
            provider=cast(CloudProvider, self.cloud),
            store=self.store,
            queue=self.queue,
            quarantine=Quarantine(hand, self._hear, suspects, quarantined={}),
            performer=Performer(kube, self.permission, grace=1.0),
            recorder=self.recorder,
            send=self._hear,
        )
        self.controller = cast(Controller, worker.new_controller(self.context))
        self._epoch = 0

    def _hear(self, message: Message) -> bool:
        return True

    def feed(self, *volumes: PersistentVolume) -> None:
        """Bring the store up to date with a snapshot, cut down as the supervisor does it."""
        entries = [
            [
                "PersistentVolume",
                volume.name,
                int(volume.raw["metadata"]["resourceVersion"]),
                project(volume.raw, PROJECTIONS[0].paths),
            ]
            for volume in volumes
        ]
        self._epoch += 1
        self.store.absorb(snapshot(*entries, epoch=self._epoch))

    async def reconcile(self, name: str = "pv-1") -> Result:
        """One reconcile, as the runner has it executed; raises what the controller raises."""
        await self.context.quarantine.acquire_place()
        try:
            async with asyncio.timeout(PATIENCE), self.context.quarantine.executing(name):
                return await self.controller.reconcile(name)
        finally:
            self.context.quarantine.release_place()


class Small(World):
    """A world with a cluster in memory."""

    def __init__(self, hand: InFlightJournal, suspects: tuple[str, ...], **flags: Any) -> None:
        self.cluster = Cluster()
        super().__init__(hand, cast(Kube, self.cluster), suspects, **flags)

    async def sync(self, name: str = "pv-1") -> Result:
        """The feed, then `reconcile`."""
        self.feed(*map(self.cluster.get, self.cluster.names()))
        return await self.reconcile(name)

    async def events(self) -> list[tuple[str, str, str]]:
        """What people were told: type, reason, message."""
        await self.recorder.drain(PATIENCE)
        return [(one["type"], one["reason"], one["message"]) for one in self.cluster.events]


@asynccontextmanager
async def small_world(*suspects: str, **flags: Any) -> AsyncIterator[Small]:
    """A world in memory whose parts run until the end of the block."""
    with TemporaryDirectory() as directory:
        made = Small(InFlightJournal(Path(directory) / "volume-label.1.hand"), suspects, **flags)
        async with running(made):
            yield made


@asynccontextmanager
async def running(made: World) -> AsyncIterator[None]:
    """The parts of a world run until the end of the block."""
    tasks = [asyncio.create_task(made.controller.run()), asyncio.create_task(made.recorder.run())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
