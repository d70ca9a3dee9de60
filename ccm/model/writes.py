"""The writes to one Kubernetes object, as values; `workers.performer` sends them."""

from dataclasses import dataclass
from typing import Any

from ccm.model.objects import Json, KubernetesObject


@dataclass(frozen=True, slots=True)
class Patch:
    """A JSON patch of one object; its `test` operations say what it was planned against."""

    path: str
    operations: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Merge:
    """A strategic merge patch of one object: conditions merge by type, the others stay.

    With `metadata.uid` in it, it fails when the object is another one by now.
    """

    path: str
    body: Json


@dataclass(frozen=True, slots=True)
class Delete:
    """The deletion of one object, if it is still the one with this UID."""

    path: str
    uid: str


Write = Patch | Merge | Delete


# The operations of a JSON patch.


def expect(path: str, seen: Any) -> Json:
    """The test that this member is what we saw; None is a missing one, which tests equal to null.

    Its parent has to be there.
    """
    return {"op": "test", "path": path, "value": seen}


def expect_same(planned_for: KubernetesObject) -> Json:
    """The test that the object is the one that was planned for, and not another of its name."""
    return expect("/metadata/uid", planned_for.uid)


def replace_seen(path: str, seen: Any, wanted: Any) -> tuple[Json, Json]:
    """Replace what we saw; None is a missing member."""
    if wanted is None:
        return expect(path, seen), {"op": "remove", "path": path}
    return expect(path, seen), {"op": "add", "path": path, "value": wanted}


def label_path(key: str) -> str:
    """Where a label is."""
    return f"/metadata/labels/{key.replace('~', '~0').replace('/', '~1')}"
