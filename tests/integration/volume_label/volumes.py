"""PersistentVolumes for tests: a plain one of the fake cloud, and tweaks that make it special."""

from typing import Any

from ccm.model.cloud import VolumePlace
from ccm.model.objects import Json
from ccm.model.volume import INITIALIZER, PersistentVolume
from tests.support.nodes import Tweak
from workers.volume_label.plan import LabelRules

DRIVER = "fake.csi.example"
RULES = LabelRules(frozenset({DRIVER}), frozenset({"cinder"}), has_legacy_labels=False)
WITHOUT_ZONES = LabelRules(frozenset({DRIVER}), frozenset(), False, has_zones=False)
WITH_LEGACY = LabelRules(frozenset({DRIVER}), frozenset({"cinder"}), has_legacy_labels=True)

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
OLD_REGION = "failure-domain.beta.kubernetes.io/region"


def volume(*tweaks: Tweak, name: str = "pv-1") -> PersistentVolume:
    """A volume as the API server takes it, without labels and affinity."""
    raw: Json = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "uid": f"uid-of-{name}", "resourceVersion": "1"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": DRIVER, "volumeHandle": f"vol-of-{name}"},
        },
    }
    for tweak in tweaks:
        tweak(raw)
    return PersistentVolume(raw)


def of_driver(driver: str) -> Tweak:
    return lambda raw: raw["spec"]["csi"].update(driver=driver)


def with_source(name: str, **members: Any) -> Tweak:
    """Another source than CSI."""

    def tweak(raw: Json) -> None:
        del raw["spec"]["csi"]
        raw["spec"][name] = members

    return tweak


def labelled(**labels: str) -> Tweak:
    """Labels; zone, region, old_zone and old_region stand for the keys above."""
    long = {"zone": ZONE, "region": REGION, "old_zone": OLD_ZONE, "old_region": OLD_REGION}
    return lambda raw: (
        raw["metadata"]
        .setdefault("labels", {})
        .update({long.get(key, key): value for key, value in labels.items()})
    )


def with_empty_labels(raw: Json) -> None:
    raw["metadata"].setdefault("labels", {})


def requirement(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": [*values]} if values else {})}


def terms(*alternatives: list[Json]) -> Json:
    """A node affinity of alternatives, each of which is a list of requirements."""
    listed = [{"matchExpressions": alternative} for alternative in alternatives]
    return {"required": {"nodeSelectorTerms": listed}}


def with_affinity(affinity: Json) -> Tweak:
    return lambda raw: raw["spec"].update(nodeAffinity=affinity)


def in_zones(*zones: str, key: str = ZONE) -> Tweak:
    return with_affinity(terms([requirement(key, "In", *zones)]))


def waiting(*others: str) -> Tweak:
    """Held back by our initializer, and by others."""
    pending = [{"name": name} for name in (INITIALIZER, *others)]
    return lambda raw: raw["metadata"].update(initializers={"pending": pending})


def deleted(raw: Json) -> None:
    raw["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"


def place(*zones: str, region: str = "north") -> VolumePlace:
    return VolumePlace(zones, region)
