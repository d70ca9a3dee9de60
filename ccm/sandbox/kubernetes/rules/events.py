"""Rules of Events."""

from __future__ import annotations

from collections.abc import Iterator

from ccm.sandbox.kubernetes.failures import Cause
from ccm.sandbox.kubernetes.objects import Object, metadata, section
from ccm.sandbox.kubernetes.rules.rule import Rules, required, wrong


def _default(event: Object) -> None:
    section(event, "involvedObject")
    section(event, "source")
    event.setdefault("firstTimestamp", None)
    event.setdefault("lastTimestamp", None)
    event.setdefault("eventTime", None)
    event.setdefault("reportingComponent", "")
    event.setdefault("reportingInstance", "")


def _validate(event: Object, old: Object | None) -> Iterator[Cause]:
    # An event with eventTime is one of the new API, which insists on more.
    if event["eventTime"] is not None and old is None:
        for name in ("reportingComponent", "reportingInstance", "action", "reason"):
            if not event.get(name):
                yield required(name)
    about = event["involvedObject"].get("namespace", "")
    # Events about objects without a namespace live in "default".
    if metadata(event).get("namespace") != (about or "default"):
        yield wrong("involvedObject.namespace", about, "does not match event.namespace")


EVENT_RULES = Rules(default=_default, validate=_validate)
