"""The API server's audit log: what is logged, and how tests read it.

An entry is written before the client sees the end of the response, so a test that has its
answer finds the request in the log. A watch is logged when it ends.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

POLICY: Mapping[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One finished request; a part that the request has not is an empty string."""

    user: str
    user_agent: str
    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    uri: str
    code: int
    raw: Mapping[str, Any]

    @property
    def received_at(self) -> float:
        """When the API server began with the request, as a wall clock has it."""
        return _seconds(self.raw["requestReceivedTimestamp"])

    @property
    def answered_at(self) -> float:
        """When it had answered, by the same clock."""
        return _seconds(self.raw["stageTimestamp"])

    @property
    def is_write(self) -> bool:
        """Whether it may have changed something; a review is created and not stored."""
        return self.verb in WRITES and not self.resource.endswith("reviews")


def read_audit_log(path: Path, since: int = 0) -> Iterator[AuditEntry]:
    """Yield the requests that finished since the log had that size, in the order of their ends.

    None when no log is.
    """
    if not path.exists():
        return
    with path.open("rb") as log:
        if since:
            log.seek(since - 1)
            log.readline()  # the rest of a line that was being written
        for line in log:
            if line.endswith(b"\n"):  # otherwise it is still being written
                yield _entry(orjson.loads(line))


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def _entry(raw: Mapping[str, Any]) -> AuditEntry:
    ref = raw.get("objectRef", {})
    parts = ("resource", "subresource", "namespace", "name")
    return AuditEntry(
        user=raw.get("user", {}).get("username", ""),
        user_agent=raw.get("userAgent", ""),
        verb=raw.get("verb", ""),
        group=ref.get("apiGroup", ""),
        **{part: ref.get(part, "") for part in parts},
        uri=raw.get("requestURI", ""),
        code=raw.get("responseStatus", {}).get("code", 0),
        raw=raw,
    )
