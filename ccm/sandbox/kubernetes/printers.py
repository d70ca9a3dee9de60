"""Server-side Tables with the columns of the real server's printers, for `kubectl get`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from ccm.sandbox.kubernetes import kinds
from ccm.sandbox.kubernetes.objects import Object, lookup
from ccm.sandbox.kubernetes.request import TABLE_GROUP, ApiRequest
from ccm.sandbox.kubernetes.storage import StoredObject

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400
UNITS = {"s": 1, "m": MINUTE, "h": HOUR, "d": DAY, "y": YEAR}
# Up to how long the two units are shown, and the smaller one of them.
DURATIONS = (
    (3 * HOUR, "m", "s", 10 * MINUTE),
    (2 * DAY, "h", "m", 8 * HOUR),
    (2 * YEAR, "d", "h", 8 * DAY),
    (float("inf"), "y", "d", 8 * YEAR),
)
ROLE_PREFIX = "node-role.kubernetes.io/"
ACCESS_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
MAX_INGRESS_WIDTH = 16

Cell = Callable[[Object], Any]


def age(stamp: Any) -> str:
    """Return how long ago a timestamp was, or what kubectl prints when there is none."""
    if not stamp:
        return "<unknown>"
    elapsed = datetime.now(UTC) - datetime.fromisoformat(stamp)
    return human_duration(elapsed.total_seconds())


def human_duration(seconds: float) -> str:
    """Round a duration as k8s.io/apimachinery/pkg/util/duration does."""
    seconds = int(seconds)
    if seconds < 2 * MINUTE:
        return f"{max(seconds, 0)}s" if seconds >= -1 else "<invalid>"
    large, small, precise = next(row[1:] for row in DURATIONS if seconds < row[0])
    count, rest = divmod(seconds, UNITS[large])
    parts = rest // UNITS[small] if seconds < precise else 0
    return f"{count}{large}{parts}{small}" if parts else f"{count}{large}"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column; priority 1 shows with `-o wide` only."""

    name: str
    cell: Cell
    priority: int = 0
    type: str = "string"
    format: str = ""

    @property
    def definition(self) -> Object:
        shown = {"name": self.name, "type": self.type, "format": self.format}
        return {**shown, "description": self.name, "priority": self.priority}


def _field(*paths: str, default: Any = "") -> Cell:
    """The first of these fields that is set."""
    return lambda obj: next(filter(None, (lookup(obj, path) for path in paths)), default)


def _age_of(*paths: str) -> Cell:
    stamp = _field(*paths)
    return lambda obj: age(stamp(obj))


_NAME = TableColumn("Name", _field("metadata.name"), format="name")
_CREATED = TableColumn("Created At", _field("metadata.creationTimestamp"), type="date")
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


def _node_roles(node: Object) -> str:
    roles = set()
    for key, value in (lookup(node, "metadata.labels") or {}).items():
        if key.startswith(ROLE_PREFIX) and key != ROLE_PREFIX:
            roles.add(key.removeprefix(ROLE_PREFIX))
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    return ",".join(sorted(roles)) or "<none>"


def _node_address(kind: str) -> Cell:
    def cell(node: Object) -> str:
        addresses = lookup(node, "status.addresses") or []
        found = (each["address"] for each in addresses if each.get("type") == kind)
        return str(next(found, "<none>"))

    return cell


def _node_info(name: str) -> Cell:
    return _field(f"status.nodeInfo.{name}", default="<unknown>")


def _service_external(service: Object) -> str:
    spec = service["spec"]
    given = ",".join(spec.get("externalIPs") or ())
    match spec.get("type"):
        case "ExternalName":
            return str(spec.get("externalName", ""))
        case "LoadBalancer":
            ingress = lookup(service, "status.loadBalancer.ingress") or []
            found = ",".join(each.get("ip") or each.get("hostname", "") for each in ingress)
            if len(found) > MAX_INGRESS_WIDTH:
                found = found[: MAX_INGRESS_WIDTH - 3] + "..."
            both = ",".join(each for each in (found, given) if each)
            return both or "<pending>"
        case _:
            return given or "<none>"


def _service_ports(service: Object) -> str:
    shown = []
    for port in service["spec"].get("ports") or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port['port']}{node_port}/{port['protocol']}")
    return ",".join(shown) or "<none>"


def _service_selector(service: Object) -> str:
    selector = service["spec"].get("selector") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or "<none>"


def _volume_modes(volume: Object) -> str:
    modes = lookup(volume, "spec.accessModes") or []
    return ",".join(short for mode, short in ACCESS_MODES.items() if mode in modes)


def _volume_status(volume: Object) -> str:
    if lookup(volume, "metadata.deletionTimestamp"):
        return "Terminating"
    return str(lookup(volume, "status.phase") or "")


def _volume_claim(volume: Object) -> str:
    claim = lookup(volume, "spec.claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _event_object(event: Object) -> str:
    ref = event["involvedObject"]
    name, kind = ref.get("name", ""), ref.get("kind", "").lower()
    return f"{kind}/{name}" if name else kind


def _event_source(event: Object) -> str:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host") or event.get("reportingInstance") or ""
    return f"{component}, {host}" if host else component


_COLUMNS: Mapping[str, tuple[TableColumn, ...]] = {
    kinds.NODE.plural: (
        _NAME,
        TableColumn("Status", _node_status),
        TableColumn("Roles", _node_roles),
        _AGE,
        TableColumn("Version", _field("status.nodeInfo.kubeletVersion")),
        TableColumn("Internal-IP", _node_address("InternalIP"), 1),
        TableColumn("External-IP", _node_address("ExternalIP"), 1),
        TableColumn("OS-Image", _node_info("osImage"), 1),
        TableColumn("Kernel-Version", _node_info("kernelVersion"), 1),
        TableColumn("Container-Runtime", _node_info("containerRuntimeVersion"), 1),
    ),
    kinds.SERVICE.plural: (
        _NAME,
        TableColumn("Type", _field("spec.type")),
        TableColumn("Cluster-IP", _field("spec.clusterIP", default="<none>")),
        TableColumn("External-IP", _service_external),
        TableColumn("Port(s)", _service_ports),
        _AGE,
        TableColumn("Selector", _service_selector, 1),
    ),
    kinds.PERSISTENT_VOLUME.plural: (
        _NAME,
        TableColumn("Capacity", _field("spec.capacity.storage")),
        TableColumn("Access Modes", _volume_modes),
        TableColumn("Reclaim Policy", _field("spec.persistentVolumeReclaimPolicy")),
        TableColumn("Status", _volume_status),
        TableColumn("Claim", _volume_claim),
        TableColumn("StorageClass", _field("spec.storageClassName")),
        TableColumn(
            "VolumeAttributesClass", _field("spec.volumeAttributesClassName", default="<unset>")
        ),
        TableColumn("Reason", _field("status.reason")),
        _AGE,
        TableColumn("VolumeMode", _field("spec.volumeMode", default="<unset>"), 1),
    ),
    kinds.LEASE.plural: (_NAME, TableColumn("Holder", _field("spec.holderIdentity")), _AGE),
    kinds.NAMESPACE.plural: (_NAME, TableColumn("Status", _field("status.phase")), _AGE),
    kinds.EVENT.plural: (
        TableColumn("Last Seen", _age_of("series.lastObservedTime", "lastTimestamp", "eventTime")),
        TableColumn("Type", _field("type")),
        TableColumn("Reason", _field("reason")),
        TableColumn("Object", _event_object),
        TableColumn("Subobject", _field("involvedObject.fieldPath"), 1),
        TableColumn("Source", _event_source, 1),
        TableColumn("Message", lambda event: event.get("message", "").strip()),
        TableColumn("First Seen", _age_of("firstTimestamp", "eventTime"), 1),
        TableColumn("Count", _field("series.count", "count", default=1), 1),
        TableColumn("Name", _field("metadata.name"), 1, format="name"),
    ),
}


def render(request: ApiRequest, stored: StoredObject) -> bytes:
    """Return an object as the client wants it: as JSON or as a Table of one row."""
    if not request.table_version:
        return stored.encoded
    meta = {"resourceVersion": stored.obj["metadata"].get("resourceVersion", "")}
    return encode_table(request, [stored], meta)


def encode_table(request: ApiRequest, items: Iterable[StoredObject], metadata: Object) -> bytes:
    """Return the Table of some objects; a kind without columns of its own has a custom one's."""
    columns = _COLUMNS.get(request.target.kind.plural, (_NAME, _CREATED))
    include = request.query.get("includeObject", "")
    table = {
        "kind": "Table",
        "apiVersion": f"{TABLE_GROUP}/{request.table_version}",
        "metadata": metadata,
        "columnDefinitions": [column.definition for column in columns],
        "rows": [_row(columns, stored, include) for stored in items],
    }
    return orjson.dumps(table)


def _row(columns: tuple[TableColumn, ...], stored: StoredObject, include: str) -> Object:
    row: Object = {"cells": [column.cell(stored.obj) for column in columns]}
    if include == "Object":
        row["object"] = stored.obj
    elif include != "None":
        row["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": f"{TABLE_GROUP}/v1",
            "metadata": stored.obj["metadata"],
        }
    return row
