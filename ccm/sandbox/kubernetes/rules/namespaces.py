"""Rules of Namespaces."""

from __future__ import annotations

from ccm.sandbox.kubernetes.objects import Object, metadata, section
from ccm.sandbox.kubernetes.rules.rule import Rules
from ccm.sandbox.kubernetes.store import Store

NAME_LABEL = "kubernetes.io/metadata.name"


def _admit(namespace: Object, old: Object | None, store: Store) -> None:
    meta = metadata(namespace)
    section(meta, "labels")[NAME_LABEL] = meta["name"]
    section(namespace, "spec").setdefault("finalizers", ["kubernetes"])
    section(namespace, "status").setdefault("phase", "Active")


NAMESPACE_RULES = Rules(admit=_admit)
