"""Rules of PersistentVolumes."""

from __future__ import annotations

from collections.abc import Iterator

from ccm.sandbox.kubernetes.failures import Cause
from ccm.sandbox.kubernetes.objects import Object, metadata, section
from ccm.sandbox.kubernetes.rules.rule import Rules, immutable, refused, required
from ccm.sandbox.kubernetes.store import Store

PROTECTION = "kubernetes.io/pv-protection"

# Members of a PersistentVolumeSpec that are not its one source.
NOT_SOURCES = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    }
)


def _default(volume: Object) -> None:
    spec = section(volume, "spec")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    section(volume, "status").setdefault("phase", "Pending")


def _admit(volume: Object, old: Object | None, store: Store) -> None:
    """Protect a new volume as the StorageObjectInUseProtection admission plugin does."""
    if old is None:
        finalizers = metadata(volume).setdefault("finalizers", [])
        if PROTECTION not in finalizers:
            finalizers.append(PROTECTION)


def _validate(volume: Object, old: Object | None) -> Iterator[Cause]:
    spec = volume["spec"]
    if not spec.get("accessModes"):
        yield required("spec.accessModes")
    if not spec.get("capacity"):
        yield required("spec.capacity")
    if not _source(spec):
        yield required("spec", "must specify a volume type")
    if old is not None:
        yield from _change_faults(spec, old["spec"])


def _change_faults(spec: Object, old_spec: Object) -> Iterator[Cause]:
    if _source(spec) != _source(old_spec):
        why = "spec.persistentvolumesource is immutable after creation"
        yield refused("spec.persistentvolumesource", why)
    if old_spec.get("nodeAffinity") and spec.get("nodeAffinity") != old_spec["nodeAffinity"]:
        yield immutable("spec.nodeAffinity", spec.get("nodeAffinity"))
    if spec["volumeMode"] != old_spec["volumeMode"]:
        yield immutable("spec.volumeMode", spec["volumeMode"])


def _source(spec: Object) -> Object:
    return {name: value for name, value in spec.items() if name not in NOT_SOURCES}


VOLUME_RULES = Rules(default=_default, admit=_admit, validate=_validate)
