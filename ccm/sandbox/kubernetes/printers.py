"""Server-side Tables with columns of the real server's printers, for `kubectl get`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from ccm.sandbox.kubernetes import kinds
from ccm.sandbox.kubernetes.objects import Object, lookup
from ccm.sandbox.kubernetes.request import ApiRequest
from ccm.sandbox.kubernetes.storage import StoredObject

UNITS = (("y", 365 * 86400), ("d", 86400), ("h", 3600), ("m", 60))  # in seconds
Cell = Callable[[Object], Any]


def age(stamp: Any) -> str:
    """Return how long ago a timestamp was, or what kubectl prints when there is none."""
    if not stamp:
        return "<unknown>"
    seconds = int((datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds())
    for unit, length in UNITS:
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column; priority 1 shows with `-o wide` only."""

    name: str
    cell: Cell
    priority: int = 0
    format: str = ""

    @property
    def definition(self) -> Object:
        shown = {"name": self.name, "type": "string", "format": self.format}
        return {**shown, "description": self.name, "priority": self.priority}


def _field(*paths: str, default: Any = "") -> Cell:
    """The first of these fields that is set."""
    return lambda obj: next(filter(None, (lookup(obj, path) for path in paths)), default)


def _age_of(*paths: str) -> Cell:
    stamp = _field(*paths)
    return lambda obj: age(stamp(obj))


_NAME = TableColumn("Name", _field("metadata.name"), format="name")
_AGE = TableColumn("Age", _age_of("metadata.creationTimestamp"))


def _node_status(node: Object) -> str:
    conditions = lookup(node, "status.conditions") or []
    ready = next((each for each in conditions if each.get("type") == "Ready"), None)
    shown = [
        "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    ]
    if lookup(node, "spec.unschedulable"):
        shown.append("SchedulingDisabled")
    return ",".join(shown)


def _node_address(kind: str) -> Cell:
    def cell(node: Object) -> str:
        addresses = lookup(node, "status.addresses") or []
        found = (each["address"] for each in addresses if each.get("type") == kind)
        return str(next(found, "<none>"))

    return cell


def _service_external(service: Object) -> str:
    if service["spec"].get("type") != "LoadBalancer":
        return "<none>"
    ingress = lookup(service, "status.loadBalancer.ingress") or []
    return ",".join(each.get("ip") or each.get("hostname", "") for each in ingress) or "<pending>"


def _service_ports(service: Object) -> str:
    shown = []
    for port in service["spec"].get("ports") or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port['port']}{node_port}/{port['protocol']}")
    return ",".join(shown) or "<none>"


def _event_object(event: Object) -> str:
    about = event.get("involvedObject") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


_COLUMNS: Mapping[str, tuple[TableColumn, ...]] = {
    kinds.NODE.plural: (
        _NAME,
        TableColumn("Status", _node_status),
        _AGE,
        TableColumn("Version", _field("status.nodeInfo.kubeletVersion")),
        TableColumn("Internal-IP", _node_address("InternalIP"), 1),
        TableColumn("External-IP", _node_address("ExternalIP"), 1),
    ),
    kinds.SERVICE.plural: (
        _NAME,
        TableColumn("Type", _field("spec.type")),
        TableColumn("Cluster-IP", _field("spec.clusterIP", default="<none>")),
        TableColumn("External-IP", _service_external),
        TableColumn("Port(s)", _service_ports),
        _AGE,
    ),
    kinds.PERSISTENT_VOLUME.plural: (
        _NAME,
        TableColumn("Capacity", _field("spec.capacity.storage")),
        TableColumn("Reclaim Policy", _field("spec.persistentVolumeReclaimPolicy")),
        TableColumn("Status", _field("status.phase")),
        TableColumn("StorageClass", _field("spec.storageClassName")),
        _AGE,
    ),
    kinds.LEASE.plural: (_NAME, TableColumn("Holder", _field("spec.holderIdentity")), _AGE),
    kinds.NAMESPACE.plural: (_NAME, TableColumn("Status", _field("status.phase")), _AGE),
    kinds.EVENT.plural: (
        TableColumn("Last Seen", _age_of("series.lastObservedTime", "lastTimestamp", "eventTime")),
        TableColumn("Type", _field("type")),
        TableColumn("Reason", _field("reason")),
        TableColumn("Object", _event_object),
        TableColumn("Source", _field("source.component", "reportingComponent"), 1),
        TableColumn("Message", lambda event: event.get("message", "").strip()),
        TableColumn("Count", _field("series.count", "count", default=1), 1),
        TableColumn("Name", _field("metadata.name"), 1, format="name"),
    ),
}


def render(request: ApiRequest, stored: StoredObject) -> bytes:
    """Return an object as the client wants it: as JSON or as a Table of one row."""
    if not request.wants_table:
        return stored.encoded
    meta = {"resourceVersion": stored.obj["metadata"].get("resourceVersion", "")}
    return encode_table(request, [stored], meta)


def encode_table(request: ApiRequest, items: Iterable[StoredObject], metadata: Object) -> bytes:
    """Return the Table of some objects, each of which is beside its cells."""
    columns = _COLUMNS.get(request.target.kind.plural, (_NAME, _AGE))
    table = {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [column.definition for column in columns],
        "rows": [
            {"cells": [column.cell(stored.obj) for column in columns], "object": stored.obj}
            for stored in items
        ],
    }
    return orjson.dumps(table)
