"""The writes to one Kubernetes object, as values; `workers.performer` sends them."""

from dataclasses import dataclass

from ccm.model.objects import Json


@dataclass(frozen=True, slots=True)
class Patch:
    """A JSON patch of one object; its `test` operations say what it was planned against.

    `merge` is the same as a strategic merge patch of the very version that it was planned against,
    which costs the API server less. It goes first; when there is another version by now, the
    operations say whether that matters. Its answer may have metadata alone (`is_metadata_only`).

    One that `cannot_wait` is sent however often the field was changed before, but not while another
    client sets it back each time.
    """

    path: str
    operations: tuple[Json, ...]
    merge: Json | None = None
    cannot_wait: bool = False


@dataclass(frozen=True, slots=True)
class Merge:
    """A strategic merge patch of one object: conditions merge by type, the others stay.

    With `metadata.uid` in it, it fails when the object is another one by now. Its answer may have
    metadata alone (`is_metadata_only`).
    """

    path: str
    body: Json


@dataclass(frozen=True, slots=True)
class Delete:
    """The deletion of one object, if it is still the one with this UID."""

    path: str
    uid: str


Write = Patch | Merge | Delete


def is_metadata_only(answer: Json) -> bool:
    """Whether an answer shows the metadata of an object alone."""
    return answer.get("kind") == "PartialObjectMetadata"
