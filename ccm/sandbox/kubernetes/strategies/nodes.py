"""The strategy of Nodes."""

from collections.abc import Iterable, Iterator
from typing import Any

from ccm.sandbox.kubernetes.errors import DecodeError, FieldError
from ccm.sandbox.kubernetes.objects import Object, section
from ccm.sandbox.kubernetes.storage import Storage
from ccm.sandbox.kubernetes.strategies.strategy import QUALIFIED_HINT, RESTStrategy, is_cidr

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
NODE_INFO = (
    *("machineID", "systemUUID", "bootID", "kernelVersion", "osImage"),
    *("containerRuntimeVersion", "kubeletVersion", "kubeProxyVersion"),
    *("operatingSystem", "architecture"),
)


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
        if not any(_identity(taint) == _identity(NOT_READY) for taint in taints):
            taints.append(dict(NOT_READY))

    def validate(self, node: Object, old: Object | None) -> Iterator[FieldError]:
        spec = node["spec"]
        yield from _taint_errors(spec.get("taints") or [])
        for index, cidr in enumerate(spec.get("podCIDRs") or []):
            if not is_cidr(cidr):
                why = "must be a valid address in CIDR form"
                yield FieldError.invalid(f"spec.podCIDRs[{index}]", cidr, why)
        yield from _address_errors(node["status"].get("addresses") or [])
        if old is not None:
            yield from _change_errors(spec, old["spec"])


def _change_errors(spec: Object, old_spec: Object) -> Iterator[FieldError]:
    had, has = old_spec.get("podCIDRs") or [], spec.get("podCIDRs") or []
    if had and had != has:
        why = 'node updates may not change podCIDR except from "" to valid'
        yield FieldError.forbidden("spec.podCIDRs", why)
    provider_id = old_spec.get("providerID")
    if provider_id and provider_id != spec.get("providerID"):
        why = 'node updates may not change providerID except from "" to valid'
        yield FieldError.forbidden("spec.providerID", why)


def _taint_errors(taints: Iterable[Object]) -> Iterator[FieldError]:
    seen = set()
    for index, taint in enumerate(taints):
        at = f"metadata.taints[{index}]"
        effect = taint.get("effect", "")
        if not taint.get("key"):
            yield FieldError.invalid(f"{at}.key", "", "name part must be non-empty")
            yield FieldError.invalid(f"{at}.key", "", QUALIFIED_HINT)
        if not effect:
            yield FieldError.required(f"{at}.effect", "")
        elif effect not in EFFECTS:
            yield FieldError.not_supported(f"{at}.effect", effect, EFFECTS)
        if _identity(taint) in seen:
            yield FieldError.duplicate(at, taint)
        seen.add(_identity(taint))


def _address_errors(addresses: Iterable[Object]) -> Iterator[FieldError]:
    seen = set()
    for index, address in enumerate(addresses):
        identity = (address.get("type"), address.get("address"))
        if identity in seen:
            yield FieldError.duplicate(f"status.addresses[{index}]", address)
        seen.add(identity)


def _identity(taint: Object) -> tuple[Any, Any]:
    return taint.get("key"), taint.get("effect")
