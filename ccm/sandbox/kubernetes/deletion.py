"""What a delete asks for and what keeps an object from going at once."""

from __future__ import annotations

from ccm.sandbox.kubernetes.failures import failed_precondition, unsupported_option
from ccm.sandbox.kubernetes.history import Stored
from ccm.sandbox.kubernetes.kinds import NAMESPACE
from ccm.sandbox.kubernetes.objects import Object, clone, metadata, timestamp

COLLECTOR_FINALIZERS = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


def finalizer_of(options: Object) -> str:
    """Return the finalizer that a propagation policy asks for, or nothing."""
    policy = options.get("propagationPolicy")
    if policy in (None, "Background"):
        return ""
    if policy not in COLLECTOR_FINALIZERS:
        supported = '"Foreground", "Background", "Orphan", "nil"'
        raise unsupported_option("DeleteOptions", "propagationPolicy", f'"{policy}"', supported)
    return COLLECTOR_FINALIZERS[policy]


def check_preconditions(current: Stored, options: Object) -> None:
    """Refuse to delete another object, or another version, than the client has seen."""
    wanted, meta = options.get("preconditions") or {}, current.obj["metadata"]
    uid, version = wanted.get("uid"), wanted.get("resourceVersion")
    if uid is not None and uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record"
            f" ({meta['uid']}). The object might have been deleted and then recreated"
        )
        raise failed_precondition(current.kind, meta["name"], why)
    if version is not None and version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({version}) does not match the"
            f" ResourceVersion in record ({meta['resourceVersion']}). The object might have been"
            " modified"
        )
        raise failed_precondition(current.kind, meta["name"], why)


def is_held(stored: Stored) -> bool:
    """Tell whether something must happen before the object may go."""
    held = stored.obj["metadata"].get("finalizers")
    if stored.kind == NAMESPACE:
        held = held or stored.obj["spec"].get("finalizers")
    return bool(held)


def marked_for_deletion(obj: Object, finalizer: str = "") -> Object:
    """Return the object as it waits for its finalizers, and for one more when it is given."""
    marked = clone(obj)
    meta = metadata(marked)
    meta.update(deletionTimestamp=timestamp(), deletionGracePeriodSeconds=0)
    if finalizer and finalizer not in meta.get("finalizers", []):
        meta["finalizers"] = [*meta.get("finalizers", []), finalizer]
    if marked["kind"] == NAMESPACE.name:
        del meta["deletionGracePeriodSeconds"]
        marked["status"]["phase"] = "Terminating"
    return marked
