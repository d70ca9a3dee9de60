"""Rules of Nodes."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any

from ccm.sandbox.kubernetes.failures import Cause, Undecodable
from ccm.sandbox.kubernetes.objects import Object, section
from ccm.sandbox.kubernetes.rules.metadata import QUALIFIED_HINT
from ccm.sandbox.kubernetes.rules.rule import (
    Rules,
    duplicate,
    refused,
    required,
    unsupported,
    wrong,
)
from ccm.sandbox.kubernetes.store import Store

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _decode(node: Object) -> None:
    spec = section(node, "spec")
    for name in ("taints", "podCIDRs"):
        if not isinstance(spec.get(name, []), list):
            raise Undecodable(f"NodeSpec.spec.{name} must be a list")
    for name in ("addresses", "conditions"):
        for item in section(node, "status").get(name, []):
            if any(not isinstance(value, str) for value in item.values()):
                raise Undecodable(f"NodeStatus.status.{name} must have strings as members")


def _default(node: Object) -> None:
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


NODE_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)


def _admit(node: Object, old: Object | None, store: Store) -> None:
    """Taint a new node as the TaintNodesByCondition admission plugin does."""
    if old is not None:
        return
    spec = section(node, "spec")
    taints = spec.setdefault("taints", [])
    if not any(_identity(taint) == _identity(NOT_READY) for taint in taints):
        taints.append(dict(NOT_READY))


def _validate(node: Object, old: Object | None) -> Iterator[Cause]:
    spec = node["spec"]
    yield from _taint_faults(spec.get("taints") or [])
    for index, cidr in enumerate(spec.get("podCIDRs") or []):
        if not _is_cidr(cidr):
            yield wrong(f"spec.podCIDRs[{index}]", cidr, "must be a valid address in CIDR form")
    yield from _address_faults(node["status"].get("addresses") or [])
    if old is not None:
        yield from _change_faults(spec, old["spec"])


def _change_faults(spec: Object, old_spec: Object) -> Iterator[Cause]:
    had, has = old_spec.get("podCIDRs") or [], spec.get("podCIDRs") or []
    if had and had != has:
        why = 'node updates may not change podCIDR except from "" to valid'
        yield refused("spec.podCIDRs", why)
    provider_id = old_spec.get("providerID")
    if provider_id and provider_id != spec.get("providerID"):
        why = 'node updates may not change providerID except from "" to valid'
        yield refused("spec.providerID", why)


def _taint_faults(taints: Iterable[Object]) -> Iterator[Cause]:
    seen = set()
    for index, taint in enumerate(taints):
        at = f"metadata.taints[{index}]"
        effect = taint.get("effect", "")
        if not taint.get("key"):
            yield wrong(f"{at}.key", "", "name part must be non-empty")
            yield wrong(f"{at}.key", "", QUALIFIED_HINT)
        if not effect:
            yield required(f"{at}.effect", "")
        elif effect not in EFFECTS:
            yield unsupported(f"{at}.effect", effect, EFFECTS)
        if _identity(taint) in seen:
            yield duplicate(at, taint)
        seen.add(_identity(taint))


def _address_faults(addresses: Iterable[Object]) -> Iterator[Cause]:
    seen = set()
    for index, address in enumerate(addresses):
        identity = (address.get("type"), address.get("address"))
        if identity in seen:
            yield duplicate(f"status.addresses[{index}]", address)
        seen.add(identity)


def _identity(taint: Object) -> tuple[Any, Any]:
    return taint.get("key"), taint.get("effect")


def _is_cidr(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


NODE_RULES = Rules(_decode, _default, _admit, _validate)
