"""Rules of PersistentVolumes."""

from __future__ import annotations

from collections.abc import Iterator

from ccm.sandbox.kubernetes.failures import Cause
from ccm.sandbox.kubernetes.objects import Object, metadata, section, timestamp
from ccm.sandbox.kubernetes.rules.rule import (
    Rules,
    immutable,
    refused,
    required,
    unsupported,
    wrong,
)
from ccm.sandbox.kubernetes.store import Store

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
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
    section(volume, "status")


def _admit(volume: Object, old: Object | None, store: Store) -> None:
    """Protect a new volume as the StorageObjectInUseProtection admission plugin does."""
    status = section(volume, "status")
    if old is None:
        finalizers = metadata(volume).setdefault("finalizers", [])
        if PROTECTION not in finalizers:
            finalizers.append(PROTECTION)
        status.update(phase="Pending", lastPhaseTransitionTime=timestamp())
    elif status.get("phase") != old["status"].get("phase"):
        status["lastPhaseTransitionTime"] = timestamp()


def _affinity_faults(affinity: Object) -> Iterator[Cause]:
    at = "spec.nodeAffinity.required"
    if "required" not in affinity:
        yield required(at, "must specify required node constraints")
    elif not affinity["required"].get("nodeSelectorTerms"):
        yield required(f"{at}.nodeSelectorTerms", "must have at least one node selector term")


def _validate(volume: Object, old: Object | None) -> Iterator[Cause]:
    spec = volume["spec"]
    if not spec.get("accessModes"):
        yield required("spec.accessModes")
    for mode in spec.get("accessModes") or ():
        if mode not in ACCESS_MODES:
            yield unsupported("spec.accessModes", mode, ACCESS_MODES)
    if not spec.get("capacity"):
        yield required("spec.capacity")
    if "storage" not in spec.get("capacity", {}) or len(spec["capacity"]) > 1:
        yield unsupported("spec.capacity", "null", ("storage",))
    sources = sorted(_source(spec), reverse=True)
    if not sources:
        yield required("spec", "must specify a volume type")
    for source in sources[:-1]:
        yield refused(f"spec.{source}", "may not specify more than 1 volume type")
    if "nodeAffinity" in spec:
        yield from _affinity_faults(spec["nodeAffinity"])
    if old is not None:
        yield from _change_faults(spec, old["spec"])


def _change_faults(spec: Object, old_spec: Object) -> Iterator[Cause]:
    if _source(spec) != _source(old_spec):
        why = "spec.persistentvolumesource is immutable after creation"
        yield refused("spec.persistentvolumesource", why)
    if old_spec.get("nodeAffinity") and spec.get("nodeAffinity") != old_spec["nodeAffinity"]:
        why = "field is immutable, except for updating from beta label to GA"
        yield wrong("nodeAffinity", spec.get("nodeAffinity"), why)
    if spec["volumeMode"] != old_spec["volumeMode"]:
        yield immutable("volumeMode", spec["volumeMode"])


def _source(spec: Object) -> Object:
    return {name: value for name, value in spec.items() if name not in NOT_SOURCES}


VOLUME_RULES = Rules(default=_default, admit=_admit, validate=_validate)
