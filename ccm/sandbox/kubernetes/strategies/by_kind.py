"""Which strategy each kind has, and the strategies of all but Services."""

from collections.abc import Iterable, Iterator
from typing import Any

from ccm.sandbox.kubernetes import kinds
from ccm.sandbox.kubernetes.errors import DecodeError, FieldError
from ccm.sandbox.kubernetes.objects import Object, metadata, names, section, timestamp
from ccm.sandbox.kubernetes.storage import Storage
from ccm.sandbox.kubernetes.strategies.services import ServiceStrategy
from ccm.sandbox.kubernetes.strategies.strategy import RESTStrategy, is_cidr

NAME_LABEL = "kubernetes.io/metadata.name"

# Members of a PersistentVolumeSpec that are not its one source.
NOT_SOURCES = names(
    "accessModes capacity claimRef mountOptions nodeAffinity persistentVolumeReclaimPolicy"
    " storageClassName volumeAttributesClassName volumeMode"
)

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
NODE_INFO = (
    *("machineID", "systemUUID", "bootID", "kernelVersion", "osImage"),
    *("containerRuntimeVersion", "kubeletVersion", "kubeProxyVersion"),
    *("operatingSystem", "architecture"),
)


class NamespaceStrategy(RESTStrategy):
    """Gives a namespace its name as a label, and its phase."""

    def admit(self, namespace: Object, old: Object | None, storage: Storage) -> None:
        meta = metadata(namespace)
        section(meta, "labels")[NAME_LABEL] = meta["name"]
        section(namespace, "status").setdefault("phase", "Active")


class EventStrategy(RESTStrategy):
    """Insists on the namespace of what the Event is about."""

    def default(self, event: Object) -> None:
        section(event, "involvedObject")
        section(event, "source")
        for name in ("firstTimestamp", "lastTimestamp", "eventTime"):
            event.setdefault(name, None)
        for name in ("reportingComponent", "reportingInstance"):
            event.setdefault(name, "")

    def validate(self, event: Object, old: Object | None) -> Iterator[FieldError]:
        namespace = event["involvedObject"].get("namespace", "")
        # Events about objects without a namespace live in "default".
        if metadata(event).get("namespace") != (namespace or "default"):
            why = "does not match event.namespace"
            yield FieldError.invalid("involvedObject.namespace", namespace, why)


class PersistentVolumeStrategy(RESTStrategy):
    """Keeps a volume's phase, its one source, and its node affinity once set."""

    def default(self, volume: Object) -> None:
        spec = section(volume, "spec")
        spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
        spec.setdefault("volumeMode", "Filesystem")
        section(volume, "status")

    def admit(self, volume: Object, old: Object | None, storage: Storage) -> None:
        status = section(volume, "status")
        if old is None:
            status.update(phase="Pending", lastPhaseTransitionTime=timestamp())
        elif status.get("phase") != old["status"].get("phase"):
            status["lastPhaseTransitionTime"] = timestamp()

    def validate(self, volume: Object, old: Object | None) -> Iterator[FieldError]:
        spec = volume["spec"]
        if old is not None:
            yield from _volume_update_errors(spec, old["spec"])


def _volume_update_errors(spec: Object, old_spec: Object) -> Iterator[FieldError]:
    if _source(spec) != _source(old_spec):
        why = "spec.persistentvolumesource is immutable after creation"
        yield FieldError.forbidden("spec.persistentvolumesource", why)
    if old_spec.get("nodeAffinity") and spec.get("nodeAffinity") != old_spec["nodeAffinity"]:
        why = "field is immutable, except for updating from beta label to GA"
        yield FieldError.invalid("nodeAffinity", spec.get("nodeAffinity"), why)
    if spec["volumeMode"] != old_spec["volumeMode"]:
        yield FieldError.immutable("volumeMode", spec["volumeMode"])


def _source(spec: Object) -> Object:
    return {name: value for name, value in spec.items() if name not in NOT_SOURCES}


class NodeStrategy(RESTStrategy):
    """Keeps pod CIDRs and provider ID once set, and taints new nodes as not ready."""

    def decode(self, node: Object) -> None:
        spec = section(node, "spec")
        for name in ("taints", "podCIDRs"):
            if not isinstance(spec.get(name, []), list):
                raise DecodeError(f"NodeSpec.spec.{name} must be a list")
        for name in ("addresses", "conditions"):
            for item in section(node, "status").get(name, []):
                if any(not isinstance(value, str) for value in item.values()):
                    raise DecodeError(f"NodeStatus.status.{name} must have strings as members")

    def default(self, node: Object) -> None:
        spec = section(node, "spec")
        if spec.get("podCIDR"):
            if (spec.get("podCIDRs") or [""])[0] != spec["podCIDR"]:
                spec["podCIDRs"] = [spec["podCIDR"]]
        elif spec.get("podCIDRs"):
            spec["podCIDR"] = spec["podCIDRs"][0]
        for name in ("taints", "podCIDRs", "podCIDR", "providerID", "unschedulable"):
            if name in spec and not spec[name]:
                del spec[name]
        status = section(node, "status")
        if status.get("capacity"):
            status.setdefault("allocatable", status["capacity"])
        for condition in status.get("conditions") or ():
            condition.setdefault("lastHeartbeatTime", None)
            condition.setdefault("lastTransitionTime", None)
        status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
        status.setdefault("nodeInfo", dict.fromkeys(NODE_INFO, ""))

    def admit(self, node: Object, old: Object | None, storage: Storage) -> None:
        """Taint a new node as the TaintNodesByCondition admission plugin does."""
        if old is not None:
            return
        spec = section(node, "spec")
        taints = spec.setdefault("taints", [])
        if not any(_taint_identity(taint) == _taint_identity(NOT_READY) for taint in taints):
            taints.append(dict(NOT_READY))

    def validate(self, node: Object, old: Object | None) -> Iterator[FieldError]:
        spec = node["spec"]
        for index, cidr in enumerate(spec.get("podCIDRs") or []):
            if not is_cidr(cidr):
                why = "must be a valid address in CIDR form"
                yield FieldError.invalid(f"spec.podCIDRs[{index}]", cidr, why)
        yield from _address_errors(node["status"].get("addresses") or [])
        if old is not None:
            yield from _node_update_errors(spec, old["spec"])


def _node_update_errors(spec: Object, old_spec: Object) -> Iterator[FieldError]:
    had, has = old_spec.get("podCIDRs") or [], spec.get("podCIDRs") or []
    if had and had != has:
        why = 'node updates may not change podCIDR except from "" to valid'
        yield FieldError.forbidden("spec.podCIDRs", why)
    provider_id = old_spec.get("providerID")
    if provider_id and provider_id != spec.get("providerID"):
        why = 'node updates may not change providerID except from "" to valid'
        yield FieldError.forbidden("spec.providerID", why)


def _address_errors(addresses: Iterable[Object]) -> Iterator[FieldError]:
    seen = set()
    for index, address in enumerate(addresses):
        identity = (address.get("type"), address.get("address"))
        if identity in seen:
            yield FieldError.duplicate(f"status.addresses[{index}]", address)
        seen.add(identity)


def _taint_identity(taint: Object) -> tuple[Any, Any]:
    return taint.get("key"), taint.get("effect")


_DEFAULT = RESTStrategy()
_STRATEGIES: dict[str, RESTStrategy] = {
    kinds.NODE.plural: NodeStrategy(),
    kinds.SERVICE.plural: ServiceStrategy(),
    kinds.PERSISTENT_VOLUME.plural: PersistentVolumeStrategy(),
    kinds.NAMESPACE.plural: NamespaceStrategy(),
    kinds.EVENT.plural: EventStrategy(),
}


def strategy_for(kind: kinds.ResourceKind) -> RESTStrategy:
    """Return the strategy of a kind; the default one has no rules."""
    return _STRATEGIES.get(kind.plural, _DEFAULT)
