"""A planned write to a PersistentVolume as a JSON patch, with tests of all that it relies on."""

from urllib.parse import quote

from ccm.model.objects import Json
from ccm.model.volume import INITIALIZER, PersistentVolume
from ccm.model.writes import Patch
from workers.volume_label.plan import REGION_KEYS, ZONE_KEYS, SetLabels


def patch_for(volume: PersistentVolume, action: SetLabels) -> Patch:
    """The write for `action`; it fails with 422 when `volume` is not what it was.

    A test for null passes for a missing member whose parent is there.
    """
    operations = [
        _test("/metadata/uid", volume.uid),
        _test("/metadata/deletionTimestamp", None),
        *_labels(volume, action),
    ]
    if action.affinity is not None:
        operations += _set("/spec/nodeAffinity", None, action.affinity)
    if volume.waits_for_labels:
        operations += _without_initializer(volume)
    return Patch(f"/api/v1/persistentvolumes/{quote(volume.name)}", tuple(operations))


def _labels(volume: PersistentVolume, action: SetLabels) -> list[Json]:
    """Also the labels that stay are tested: the plan holds for what they say."""
    if not volume.has_labels:
        return _set("/metadata/labels", None, dict(action.labels))
    operations: list[Json] = []
    for key in (*ZONE_KEYS, *REGION_KEYS):
        path, seen = f"/metadata/labels/{key.replace('/', '~1')}", volume.labels.get(key)
        if key in action.labels:
            operations += _set(path, seen, action.labels[key])
        else:
            operations.append(_test(path, seen))
    return operations


def _without_initializer(volume: PersistentVolume) -> list[Json]:
    """An empty list of initializers means that there are none; the server wants it gone."""
    seen = volume.initializers
    left = [pending for pending in seen if pending.get("name") != INITIALIZER]
    if left:
        return _set("/metadata/initializers/pending", seen, left)
    gone: Json = {"op": "remove", "path": "/metadata/initializers"}
    return [_test("/metadata/initializers/pending", seen), gone]


def _set(path: str, seen: object, value: object) -> list[Json]:
    return [_test(path, seen), {"op": "add", "path": path, "value": value}]


def _test(path: str, value: object) -> Json:
    return {"op": "test", "path": path, "value": value}
