"""The writes to one Kubernetes object, as values; `workers.performer` sends them."""

from dataclasses import dataclass

from ccm.model.objects import Json


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
