"""What to do about one PersistentVolume, given where its volume is: pure decisions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ccm.model.cloud import Gone, VolumePlace
from ccm.model.objects import (
    Json,
    expect,
    expect_same,
    is_label_value,
    label_path,
    mapping,
    objects,
    replace_seen,
    text,
)
from ccm.model.volume import (
    INITIALIZER,
    LEGACY_REGION,
    LEGACY_ZONE,
    REGION,
    ZONE,
    PersistentVolume,
    read_zones,
    zones_text,
)
from ccm.model.writes import Patch

ZONE_KEYS, REGION_KEYS = (ZONE, LEGACY_ZONE), (REGION, LEGACY_REGION)
"""What the scheduler reads on volumes, so that none of them may say something wrong."""


@dataclass(frozen=True, slots=True)
class LabelRules:
    """Which volumes are ours, and whether they get the legacy labels as well.

    Without `has_zones` a volume may have none, and can be used in all of its region then.
    """

    csi_drivers: frozenset[str]
    legacy_sources: frozenset[str]
    has_legacy_labels: bool
    has_zones: bool = True

    @property
    def keys(self) -> tuple[str, ...]:
        """The labels that every volume is to have."""
        return self.all_keys if self.has_zones else self._keys_of(REGION_KEYS)

    @property
    def all_keys(self) -> tuple[str, ...]:
        """The same, and those of the zones that a volume has."""
        return self._keys_of(ZONE_KEYS) + self._keys_of(REGION_KEYS)

    def _keys_of(self, kind: tuple[str, ...]) -> tuple[str, ...]:
        return kind if self.has_legacy_labels else kind[:1]


@dataclass(frozen=True, slots=True)
class SetLabels:
    """Set labels and node affinity and drop the historical initializer, in one write.

    An affinity of None means that there is one already.
    """

    labels: Mapping[str, str]
    affinity: Json | None


@dataclass(frozen=True, slots=True)
class Reject:
    """Write nothing and record why, with the remedy. `may_pass`: the cloud may yet know."""

    reason: str
    message: str
    may_pass: bool


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do; the message says why."""

    message: str


def why_left_alone(volume: PersistentVolume, rules: LabelRules) -> str | None:
    """Why the cloud need not be asked about this volume; None when it has to be."""
    is_ours = volume.csi_driver in rules.csi_drivers or any(
        isinstance(volume.spec.get(source), dict) for source in rules.legacy_sources
    )
    if volume.is_being_deleted:
        return "left alone: it is being deleted"
    if not is_ours:
        return "left alone: not a volume of this cloud"
    has_all = all(volume.labels.get(key) for key in rules.keys)
    if has_all and volume.node_affinity is not None and not volume.waits_for_labels:
        return "labelled"
    return None


def plan(
    volume: PersistentVolume, answer: VolumePlace | Gone, rules: LabelRules
) -> SetLabels | Reject | Done:
    """What makes `volume` say where it is, in one write or not at all.

    Only what is missing or empty is written, and only if nothing that stays speaks against it: a
    label beside an affinity or another label that disagrees would leave its Pods nowhere to run.
    """
    if isinstance(answer, Gone):
        return _no_volume(answer)
    place = VolumePlace(tuple(sorted({*answer.zones} - {""})), answer.region)
    if not (place.zones if rules.has_zones else place.region):
        return _no_zone()
    for value in (*place.zones, place.region):
        if value and not is_label_value(value):
            return _no_label(value)
    known = place.zones or ("",)
    zones = [zone for zone in known if admits(volume.node_affinity, zone, place.region)]
    if not zones:
        return _against_affinity(place)
    labels = _labels(volume, place, zones, rules)
    if isinstance(labels, Reject):
        return labels
    affinity = affinity_for(place) if volume.node_affinity is None else None
    if not (labels or affinity or volume.waits_for_labels):
        return Done("labelled")
    return SetLabels(labels, affinity)


def _labels(
    volume: PersistentVolume, place: VolumePlace, admitted: Iterable[str], rules: LabelRules
) -> dict[str, str] | Reject:
    """The labels to write: as many of the admitted zones as the labels that are there leave.

    A label that is there may name fewer zones than the cloud, but no other.
    """
    current = {key: value for key, value in volume.labels.items() if value}
    said = [_zones_said(current[key]) for key in ZONE_KEYS if key in current]
    zones, region = frozenset(admitted).intersection(*said), place.region
    if not zones or any(not zones_there <= {*place.zones} for zones_there in said):
        return _against_labels(current, ZONE_KEYS, zones_text(admitted))
    if region and any(current.get(key, region) != region for key in REGION_KEYS):
        return _against_labels(current, REGION_KEYS, region)
    wanted = dict.fromkeys(ZONE_KEYS, zones_text(zones)) | dict.fromkeys(REGION_KEYS, region)
    missing = {key: wanted[key] for key in rules.all_keys if wanted[key] and key not in current}
    for value in missing.values():
        if not is_label_value(value):
            return _no_label(value)
    return missing


def _zones_said(label: str) -> frozenset[str]:
    try:
        return read_zones(label)
    except ValueError:
        return frozenset()


def _no_volume(answer: Gone) -> Reject:
    return Reject(
        "VolumeNotFound",
        f"Not labelled, because this account has no such volume: {answer.evidence}. If another "
        "account has it, nothing is wrong: its own controller labels it. Else check the ID",
        may_pass=True,
    )


def _no_zone() -> Reject:
    return Reject(
        "ZoneNotFound",
        "Not labelled, because the cloud does not report where the volume is. If Pods need "
        f"to know, set label {ZONE} and spec.nodeAffinity by hand",
        may_pass=True,
    )


def _against_affinity(place: VolumePlace) -> Reject:
    where = ", ".join(place.zones) + (f" of region {place.region}" if place.region else "")
    return Reject(
        "NodeAffinityConflict",
        f"Not labelled, because the cloud has the volume in {where}, and spec.nodeAffinity admits "
        "no node there. An affinity cannot be changed: with reclaim policy Retain, delete this "
        "PersistentVolume and create it again with the right one",
        may_pass=False,
    )


def _against_labels(current: Mapping[str, str], keys: Iterable[str], known: str) -> Reject:
    said = " and ".join(f"{key}={current[key]}" for key in keys if key in current)
    return Reject(
        "LabelConflict",
        f"Not labelled, because it can be used in {known} and is labelled {said}. A label that is "
        "there is never overwritten: remove it to have the right one set",
        may_pass=False,
    )


def _no_label(value: str) -> Reject:
    return Reject(
        "LabelImpossible",
        f"Not labelled, because {value!r} cannot be the value of a label (63 letters, digits, "
        "dashes, dots and underscores at the most). If Pods need to know, set spec.nodeAffinity "
        "by hand",
        may_pass=False,
    )


def affinity_for(place: VolumePlace) -> Json:
    """The affinity for nodes in one of its zones, or in its region; with GA keys only.

    It can never be changed, so that a deprecated key in it would outlive the nodes' labels.
    """
    known = {ZONE: list(place.zones), REGION: [place.region] if place.region else []}
    expressions = [
        {"key": key, "operator": "In", "values": values} for key, values in known.items() if values
    ]
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}


def admits(affinity: Mapping[str, Any] | None, zone: str, region: str) -> bool:
    """Whether a node in this zone can satisfy `affinity`; an empty region is one not known.

    A key of whatever domain that ends in `/zone` or `/region` is taken for what it says, since CSI
    drivers have keys of their own; every other key is taken for satisfied.
    """
    if affinity is None or affinity.get("required") is None:
        return True
    place = {"zone": zone, "region": region}
    terms = objects(mapping(affinity.get("required")).get("nodeSelectorTerms"))
    return any(_term_admits(term, place) for term in terms)


def _term_admits(term: Json, place: Mapping[str, str]) -> bool:
    """All requirements of a term hold; one without any admits nothing, as in Kubernetes."""
    expressions = objects(term.get("matchExpressions"))
    if not expressions:
        return bool(term.get("matchFields"))
    return all(_expression_admits(expression, place) for expression in expressions)


def _expression_admits(expression: Json, place: Mapping[str, str]) -> bool:
    """An operator that makes no sense for a zone admits nothing: doubt writes no label."""
    domain, _, name = text(expression.get("key")).rpartition("/")
    known = place.get(name, "") if domain else ""
    values = expression.get("values")
    listed = values if isinstance(values, list) else []
    match known, expression.get("operator"):
        case "", _:
            return True
        case _, "In":
            return known in listed
        case _, "NotIn":
            return known not in listed
        case _, operator:
            return operator == "Exists"


def patch_for(volume: PersistentVolume, action: SetLabels) -> Patch:
    """The write for `action`; it fails with 422 when `volume` is not what it was."""
    operations = [
        expect_same(volume),
        expect("/metadata/deletionTimestamp", None),
        *_label_operations(volume, action),
    ]
    if action.affinity is not None:
        operations += replace_seen("/spec/nodeAffinity", None, action.affinity)
    if volume.waits_for_labels:
        operations += _without_initializer(volume)
    return Patch(f"/api/v1/persistentvolumes/{quote(volume.name)}", tuple(operations))


def _label_operations(volume: PersistentVolume, action: SetLabels) -> Iterable[Json]:
    """Also the labels that stay are tested: the plan holds for what they say."""
    if not volume.has_labels:
        return replace_seen("/metadata/labels", None, dict(action.labels))
    operations: list[Json] = []
    for key in (*ZONE_KEYS, *REGION_KEYS):
        path, seen = label_path(key), volume.labels.get(key)
        if key in action.labels:
            operations += replace_seen(path, seen, action.labels[key])
        else:
            operations.append(expect(path, seen))
    return operations


def _without_initializer(volume: PersistentVolume) -> tuple[Json, Json]:
    """An empty list of initializers means that there are none; the server wants it gone."""
    path, seen = "/metadata/initializers/pending", volume.initializers
    left = [pending for pending in seen if pending.get("name") != INITIALIZER]
    if left:
        return replace_seen(path, seen, left)
    return expect(path, seen), {"op": "remove", "path": "/metadata/initializers"}
