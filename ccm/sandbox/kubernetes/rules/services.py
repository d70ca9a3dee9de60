"""Rules of Services: their defaults, and when things are handed out to them."""

from __future__ import annotations

from ccm.sandbox.kubernetes.kinds import SERVICE
from ccm.sandbox.kubernetes.objects import Object, section
from ccm.sandbox.kubernetes.rules.addresses import Pool
from ccm.sandbox.kubernetes.rules.rule import Rules
from ccm.sandbox.kubernetes.rules.service_allocation import (
    allocate,
    drop_what_the_type_lacks,
    keep_allocations,
)
from ccm.sandbox.kubernetes.rules.service_types import is_reached_from_outside
from ccm.sandbox.kubernetes.rules.service_validation import validate_service
from ccm.sandbox.kubernetes.store import Store

AFFINITY_SECONDS = 10800


def _default(service: Object) -> None:
    spec = section(service, "spec")
    spec.setdefault("type", "ClusterIP")
    _default_affinity(spec)
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if not port.get("targetPort"):
            port["targetPort"] = port.get("port", 0)
        if not port.get("nodePort"):
            port.pop("nodePort", None)
    if is_reached_from_outside(spec):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    _default_status(service)


def _default_affinity(spec: Object) -> None:
    spec.setdefault("sessionAffinity", "None")
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif "sessionAffinityConfig" not in spec:
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}}


def _default_status(service: Object) -> None:
    status = section(service, "status")
    for entry in section(status, "loadBalancer").get("ingress") or ():
        if service["spec"]["type"] == "LoadBalancer" and entry.get("ip"):
            entry.setdefault("ipMode", "VIP")
    for condition in status.get("conditions") or ():
        condition.setdefault("lastTransitionTime", None)
        condition.setdefault("reason", "")
        condition.setdefault("message", "")


def _admit(service: Object, old: Object | None, store: Store) -> None:
    spec = service["spec"]
    section(service["status"], "loadBalancer")
    if old is not None:
        if spec == old["spec"]:
            return
        keep_allocations(spec, old["spec"])
        drop_what_the_type_lacks(spec, old["spec"])
        if spec["type"] != "LoadBalancer":
            service["status"]["loadBalancer"] = {}
    uid = service["metadata"].get("uid")
    others = (stored.obj for stored in store.current(SERVICE).values())
    allocate(spec, Pool.of(each for each in others if each["metadata"]["uid"] != uid))


SERVICE_RULES = Rules(default=_default, admit=_admit, validate=validate_service)
