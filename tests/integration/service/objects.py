"""Services and Nodes for tests: plain ones, and tweaks that make them special."""

from collections.abc import Mapping
from typing import Any

from ccm.model.objects import Json, Node
from ccm.model.service import FINALIZER, Service
from tests.support.nodes import Tweak, labelled, with_addresses, with_provider_id
from tests.support.nodes import node as plain_node
from tests.support.nodes import with_taint as with_any_taint
from workers.service.backends import EXCLUDE_LABEL, TO_BE_DELETED_TAINT

KEY = "default/web"
DELETED_AT = "2026-01-01T00:00:00Z"


def service(*tweaks: Tweak, name: str = "web") -> Service:
    """A Service that wants a balancer and does not have one."""
    raw: Json = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-of-{name}",
            "resourceVersion": "1",
        },
        "spec": {"type": "LoadBalancer", "ports": [port(80)]},
        "status": {"loadBalancer": {}},
    }
    for tweak in tweaks:
        tweak(raw)
    return Service(raw)


def port(number: int, protocol: str = "TCP", **more: Any) -> Json:
    known = {"port": number, "protocol": protocol, "nodePort": 30000 + number % 2000}
    return {**known, "targetPort": number, **more}


def typed(kind: str) -> Tweak:
    return lambda raw: raw["spec"].update(type=kind)


def spec(**fields: Any) -> Tweak:
    return lambda raw: raw["spec"].update(fields)


def finalized(raw: Json) -> None:
    raw["metadata"].setdefault("finalizers", []).append(FINALIZER)


def being_deleted(raw: Json) -> None:
    raw["metadata"]["deletionTimestamp"] = DELETED_AT


def annotated(annotations: Mapping[str, str]) -> Tweak:
    return lambda raw: raw["metadata"].setdefault("annotations", {}).update(annotations)


def with_status(*ips: str, **more: Any) -> Tweak:
    ingress = [{"ip": ip, **more} for ip in ips]
    return lambda raw: raw["status"].update(loadBalancer={"ingress": ingress})


def with_uid(uid: str) -> Tweak:
    return lambda raw: raw["metadata"].update(uid=uid)


def node(name: str, *tweaks: Tweak) -> Node:
    """A Ready Node with a provider ID and an address."""
    usual = (with_provider_id(f"fake://{name}"), with_address(f"10.0.0.{len(name)}"), ready("True"))
    return plain_node(*usual, *tweaks, name=name)


def ready(status: str | None) -> Tweak:
    """The Ready condition with this status, or without it."""
    conditions = [{"type": "Ready", "status": status}] if status else []
    return lambda raw: raw["status"].update(conditions=conditions)


def with_taint(key: str) -> Tweak:
    return with_any_taint({"key": key, "effect": "NoSchedule"})


def with_address(address: str) -> Tweak:
    return with_addresses(f"InternalIP {address}")


EXCLUDED = labelled({EXCLUDE_LABEL: ""})
NO_PROVIDER_ID = with_provider_id("")
NOT_READY = ready("False")
TO_BE_DELETED = with_taint(TO_BE_DELETED_TAINT)


def of_namespace(name: str) -> Tweak:
    return lambda raw: raw["metadata"].update(namespace=name)
