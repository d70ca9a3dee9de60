"""The volume-label controller: what one reconcile does, and what it records on the volume."""

import logging
from collections.abc import Iterable

from ccm.bus.frames import Message
from ccm.cloud.interface import RegionalVolumes, Volumes
from ccm.decide.budget import Priority
from ccm.errors import CloudError, Refused
from ccm.kube.events import Event, ObjectRef
from ccm.log import performing
from ccm.model.cloud import PlaceAnswer, Unknown
from ccm.model.objects import Json, Projection
from ccm.model.volume import LEGACY_SOURCES, REGION, ZONE, PersistentVolume
from ccm.settings import Settings
from workers.batch_reader import BatchReader
from workers.controller import Controller, ControllerContext, NotNeeded, Result
from workers.queue import RETRY
from workers.volume_label.plan import (
    Done,
    LabelRules,
    Reject,
    SetLabels,
    patch_for,
    plan,
    why_left_alone,
)

log = logging.getLogger(__name__)

COMPONENT = "volume-label-controller"
_META = ("name", "uid", "labels", "deletionTimestamp", "initializers")

BACKOFF = RETRY
CONFLICT_RETRY = 3600.0  # seconds until the cloud is asked again for what contradicts a volume

PROJECTIONS = (
    Projection(
        PersistentVolume.KIND,
        (
            *(("metadata", name) for name in _META),
            ("spec", "csi", "driver"),
            ("spec", "csi", "volumeHandle"),
            ("spec", "nodeAffinity"),
            *(("spec", source) for source in LEGACY_SOURCES),
        ),
    ),
)


def new_controller(context: ControllerContext) -> Controller:
    """The volume-label controller of this process."""
    volumes = context.provider.volumes
    if volumes is None:
        raise NotNeeded("the provider has no volumes")
    if unknown := sorted(volumes.legacy_sources - {*LEGACY_SOURCES}):
        log.warning("these sources of volumes are never seen", extra={"legacy_sources": unknown})
    return VolumeLabelController(context, volumes)


def concurrency(settings: Settings) -> int:
    """As wide as the API server takes requests: the cloud is asked in batches."""
    return settings.kube_api_in_flight


class VolumeLabelController:
    """Labels each volume of the provider once, and says on the volume why it cannot."""

    def __init__(self, context: ControllerContext, volumes: Volumes) -> None:
        self._context = context
        is_legacy = context.settings.legacy_zone_labels
        has_zones = not isinstance(volumes, RegionalVolumes) or volumes.has_zones
        self._rules = LabelRules(volumes.csi_drivers, volumes.legacy_sources, is_legacy, has_zones)
        self._reader: BatchReader[PersistentVolume, PlaceAnswer] = BatchReader(
            volumes.describe, volumes.batch_size, Priority.VOLUME, context
        )
        self._labelled = 0

    def map_to_keys(self, kind: str, key: str) -> Iterable[str]:
        return (key,)

    async def run(self) -> None:
        await self._reader.run()

    def on_message(self, message: Message) -> None:
        return

    def object_ref(self, key: str) -> ObjectRef | None:
        volume = self._volume(key)
        return ObjectRef.of(volume) if volume else None

    def status(self) -> Json:
        return {
            "objects": self._context.store.count(PersistentVolume.KIND),
            "labelled": self._labelled,
        }

    def details(self, key: str) -> Json:
        volume = self._volume(key)
        if volume is None:
            return {"volume": "not found"}
        labels = {k: v for k, v in volume.labels.items() if k in (ZONE, REGION)}
        return {
            "volume": why_left_alone(volume, self._rules) or "ours to label",
            "labels": ", ".join(f"{k}={v}" for k, v in labels.items()) or "none about its place",
        }

    async def reconcile(self, key: str) -> Result:
        volume = self._volume(key)
        why = why_left_alone(volume, self._rules) if volume else "it is gone"
        if volume is None or why:
            self._reader.forget(key)
            return Result(why or "")
        answer = await self._reader.read(volume)
        now = self._volume(key)  # it may have changed while the cloud was asked
        if now is None or now.uid != volume.uid or why_left_alone(now, self._rules):
            return Result("it changed while the cloud was asked", is_done=False, requeue_after=0.0)
        if isinstance(answer, Unknown):
            self._reader.forget(key)
            raise CloudError(answer.why)
        return await self._perform(now, plan(now, answer, self._rules))

    async def _perform(self, volume: PersistentVolume, step: SetLabels | Reject | Done) -> Result:
        match step:
            case SetLabels():
                await self._write(volume, step)
                self._reader.forget(volume.name)
                return Result("labelled")
            case Reject(reason, message, may_pass):
                self._reader.forget(volume.name)
                self._record(volume, reason, message)
                if may_pass:
                    raise CloudError(message)
                self._context.queue.add_after(volume.name, CONFLICT_RETRY)
                raise Refused(message)
            case Done(message):
                self._reader.forget(volume.name)
                return Result(message)

    async def _write(self, volume: PersistentVolume, action: SetLabels) -> None:
        with performing(log, "volume labelled", volume=volume.name, labels=dict(action.labels)):
            known = self._context.store.version(PersistentVolume.KIND, volume.name)
            patch = patch_for(volume, action)
            answer = await self._context.performer.perform(patch, since=known)
        self._context.store.wrote(PersistentVolume.KIND, volume.name, answer)
        self._labelled += 1

    def _volume(self, name: str) -> PersistentVolume | None:
        return self._context.store.view(PersistentVolume, name)

    def _record(self, volume: PersistentVolume, reason: str, message: str) -> None:
        self._context.recorder.record(Event(ObjectRef.of(volume), "Warning", reason, message))
