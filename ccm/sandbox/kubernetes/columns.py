"""The printed columns of each kind, as the real server's printers write them."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ccm.sandbox.kubernetes.durations import age
from ccm.sandbox.kubernetes.kinds import EVENT, LEASE, NAMESPACE, NODE, PERSISTENT_VOLUME, SERVICE
from ccm.sandbox.kubernetes.kinds import Kind as _Kind
from ccm.sandbox.kubernetes.objects import Object, lookup

ROLE_PREFIX = "node-role.kubernetes.io/"
ACCESS_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
LONGEST_INGRESS = 16

Cell = Callable[[Object, datetime.datetime], Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column; priority 1 shows with `-o wide` only."""

    name: str
    cell: Cell
    priority: int = 0
    type: str = "string"
    format: str = ""


def columns_of(kind: _Kind) -> tuple[Column, ...]:
    return _COLUMNS.get(kind.plural, (_NAME, _created("Created At")))


def _field(path: str, default: str = "") -> Cell:
    return lambda obj, now: lookup(obj, path) or default


def _age_of(path: str) -> Cell:
    return lambda obj, now: age(lookup(obj, path), now)


def _created(name: str) -> Column:
    return Column(name, lambda obj, now: lookup(obj, "metadata.creationTimestamp"), type="date")


_NAME = Column("Name", _field("metadata.name"), format="name")
_AGE = Column("Age", _age_of("metadata.creationTimestamp"))


def _node_status(node: Object, now: datetime.datetime) -> str:
    conditions = lookup(node, "status.conditions") or []
    ready = next((each for each in conditions if each.get("type") == "Ready"), None)
    told = [
        "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    ]
    if lookup(node, "spec.unschedulable"):
        told.append("SchedulingDisabled")
    return ",".join(told)


def _node_roles(node: Object, now: datetime.datetime) -> str:
    roles = set()
    for key, value in (lookup(node, "metadata.labels") or {}).items():
        if key.startswith(ROLE_PREFIX) and key != ROLE_PREFIX:
            roles.add(key.removeprefix(ROLE_PREFIX))
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    return ",".join(sorted(roles)) or "<none>"


def _node_address(kind: str) -> Cell:
    def cell(node: Object, now: datetime.datetime) -> str:
        addresses = lookup(node, "status.addresses") or []
        found = (each["address"] for each in addresses if each.get("type") == kind)
        return str(next(found, "<none>"))

    return cell


def _service_external(service: Object, now: datetime.datetime) -> str:
    spec = service["spec"]
    given = ",".join(spec.get("externalIPs") or ())
    match spec.get("type"):
        case "ExternalName":
            return str(spec.get("externalName", ""))
        case "LoadBalancer":
            ingress = lookup(service, "status.loadBalancer.ingress") or []
            found = ",".join(each.get("ip") or each.get("hostname", "") for each in ingress)
            if len(found) > LONGEST_INGRESS:
                found = found[: LONGEST_INGRESS - 3] + "..."
            both = ",".join(each for each in (found, given) if each)
            return both or "<pending>"
        case _:
            return given or "<none>"


def _service_ports(service: Object, now: datetime.datetime) -> str:
    told = []
    for port in service["spec"].get("ports") or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        told.append(f"{port['port']}{node_port}/{port['protocol']}")
    return ",".join(told) or "<none>"


def _service_selector(service: Object, now: datetime.datetime) -> str:
    selector = service["spec"].get("selector") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or "<none>"


def _volume_modes(volume: Object, now: datetime.datetime) -> str:
    modes = lookup(volume, "spec.accessModes") or []
    return ",".join(short for mode, short in ACCESS_MODES.items() if mode in modes)


def _volume_status(volume: Object, now: datetime.datetime) -> str:
    if lookup(volume, "metadata.deletionTimestamp"):
        return "Terminating"
    return str(lookup(volume, "status.phase") or "")


def _volume_claim(volume: Object, now: datetime.datetime) -> str:
    claim = lookup(volume, "spec.claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _event_seen(event: Object, now: datetime.datetime) -> str:
    repeated = lookup(event, "series.lastObservedTime")
    return age(repeated or event.get("lastTimestamp") or event.get("eventTime"), now)


def _event_first_seen(event: Object, now: datetime.datetime) -> str:
    return age(event.get("firstTimestamp") or event.get("eventTime"), now)


def _event_object(event: Object, now: datetime.datetime) -> str:
    about = event["involvedObject"]
    name, kind = about.get("name", ""), about.get("kind", "").lower()
    return f"{kind}/{name}" if name else kind


def _event_source(event: Object, now: datetime.datetime) -> str:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host") or event.get("reportingInstance") or ""
    return f"{component}, {host}" if host else component


def _event_count(event: Object, now: datetime.datetime) -> int:
    return int(lookup(event, "series.count") or event.get("count") or 1)


def _event_message(event: Object, now: datetime.datetime) -> str:
    return str(event.get("message", "")).strip()


_COLUMNS: Mapping[str, tuple[Column, ...]] = {
    NODE.plural: (
        _NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        _AGE,
        Column("Version", _field("status.nodeInfo.kubeletVersion")),
        Column("Internal-IP", _node_address("InternalIP"), 1),
        Column("External-IP", _node_address("ExternalIP"), 1),
        Column("OS-Image", _field("status.nodeInfo.osImage", "<unknown>"), 1),
        Column("Kernel-Version", _field("status.nodeInfo.kernelVersion", "<unknown>"), 1),
        Column(
            "Container-Runtime", _field("status.nodeInfo.containerRuntimeVersion", "<unknown>"), 1
        ),
    ),
    SERVICE.plural: (
        _NAME,
        Column("Type", _field("spec.type")),
        Column("Cluster-IP", _field("spec.clusterIP", "<none>")),
        Column("External-IP", _service_external),
        Column("Port(s)", _service_ports),
        _AGE,
        Column("Selector", _service_selector, 1),
    ),
    PERSISTENT_VOLUME.plural: (
        _NAME,
        Column("Capacity", _field("spec.capacity.storage")),
        Column("Access Modes", _volume_modes),
        Column("Reclaim Policy", _field("spec.persistentVolumeReclaimPolicy")),
        Column("Status", _volume_status),
        Column("Claim", _volume_claim),
        Column("StorageClass", _field("spec.storageClassName")),
        Column("VolumeAttributesClass", _field("spec.volumeAttributesClassName", "<unset>")),
        Column("Reason", _field("status.reason")),
        _AGE,
        Column("VolumeMode", _field("spec.volumeMode", "<unset>"), 1),
    ),
    LEASE.plural: (_NAME, Column("Holder", _field("spec.holderIdentity")), _AGE),
    NAMESPACE.plural: (_NAME, Column("Status", _field("status.phase")), _AGE),
    EVENT.plural: (
        Column("Last Seen", _event_seen),
        Column("Type", _field("type")),
        Column("Reason", _field("reason")),
        Column("Object", _event_object),
        Column("Subobject", _field("involvedObject.fieldPath"), 1),
        Column("Source", _event_source, 1),
        Column("Message", _event_message),
        Column("First Seen", _event_first_seen, 1),
        Column("Count", _event_count, 1),
        Column("Name", _field("metadata.name"), 1, format="name"),
    ),
}
