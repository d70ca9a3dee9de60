"""What Google fills in and refuses when something is made; nothing here knows of HTTP."""

import base64
import hashlib
import ipaddress
import json
import re
from collections.abc import Iterator
from typing import Any

from tests.labs.gce.contract import Json, Refusal

HOLDS = {
    "forwardingRules": ("target", "backendService", "network", "subnetwork"),
    "targetPools": ("instances", "healthChecks"),
    "backendServices": ("healthChecks", "backends.group"),
    "firewalls": ("network",),
    "routes": ("network", "nextHopInstance"),
}
"""Fields by which one resource holds another: it must exist, and is not deleted before."""
LOOSE = {("targetPools", "instances"), ("routes", "nextHopInstance")}
"""Those that may dangle afterwards."""
ONCE_ONLY = ("id", "selfLink", "creationTimestamp", "kind", "name", "region", "zone")
"""Fields that no update changes."""
MAX_PORTS = 5


def fingerprint(value: object) -> str:
    digest = hashlib.sha1(json.dumps(value, sort_keys=True).encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def dig(value: Any, path: str) -> Iterator[Any]:
    """Everything at a path of field names, through lists."""
    if isinstance(value, list):
        for one in value:
            yield from dig(one, path)
    elif not path:
        yield value
    elif isinstance(value, dict) and value.get(path.partition(".")[0]) is not None:
        first, _, rest = path.partition(".")
        yield from dig(value[first], rest)


def refuse(field: str, problem: str, status: int = 400, reason: str = "invalid") -> Refusal:
    return Refusal(status, reason, f"Invalid value for field 'resource.{field}': {problem}")


def check_firewall(rule: Json) -> None:
    if bool(rule.get("allowed")) == bool(rule.get("denied")):
        raise Refusal(400, "required", "Exactly one of allowed and denied must be set")
    for key in ("sourceRanges", "destinationRanges"):
        for cidr in rule.get(key, ()):
            try:
                ipaddress.ip_network(cidr)
            except ValueError:
                raise refuse(key, f"'{cidr}' must be a valid address CIDR") from None
    for one in rule.get("allowed", ()):
        for port in one.get("ports", ()):
            if not re.fullmatch(r"\d+(-\d+)?", port):
                raise refuse("allowed.ports", f"'{port}'")
    rule.setdefault("direction", "INGRESS")
    rule.setdefault("priority", 1000)
    rule.setdefault("disabled", False)


def check_rule(rule: Json) -> None:
    """A forwarding rule without its address."""
    scheme = rule.setdefault("loadBalancingScheme", "EXTERNAL")
    if bool(rule.get("target")) == bool(rule.get("backendService")):
        raise Refusal(400, "required", "Exactly one of target and backendService must be set")
    if scheme == "INTERNAL" and rule.get("portRange"):
        raise refuse("portRange", "internal forwarding rules use ports")
    if len(rule.get("ports", ())) > MAX_PORTS:
        raise refuse("ports", f"at most {MAX_PORTS} ports")
    rule.setdefault("IPProtocol", "TCP")
    rule.setdefault("networkTier", "PREMIUM")
    if re.fullmatch(r"\d+", rule.get("portRange", "")):
        rule["portRange"] = f"{rule['portRange']}-{rule['portRange']}"
    rule["labelFingerprint"] = fingerprint(rule.get("labels", {}))
    rule["fingerprint"] = fingerprint(rule)


def check_health_check(check: Json) -> None:
    usual = {"checkIntervalSec": 5, "timeoutSec": 5, "healthyThreshold": 2, "unhealthyThreshold": 2}
    check |= usual | check
    if check["timeoutSec"] > check["checkIntervalSec"]:
        raise refuse("timeoutSec", "must not be greater than checkIntervalSec")


def check_route(route: Json) -> None:
    if ipaddress.ip_network(route["destRange"], strict=False).with_prefixlen != route["destRange"]:
        raise refuse("destRange", f"'{route['destRange']}'")
    if sum(key.startswith("nextHop") for key in route) != 1:
        raise Refusal(400, "invalid", "Exactly one next hop must be specified")
    route.setdefault("priority", 1000)


def check_backend_service(service: Json) -> None:
    usual = {"protocol": "TCP", "sessionAffinity": "NONE", "timeoutSec": 30}
    service |= usual | service
    for backend in service.get("backends", ()):
        backend.setdefault("balancingMode", "CONNECTION")
    service["fingerprint"] = fingerprint(service)


def check_pool(pool: Json) -> None:
    pool.setdefault("sessionAffinity", "NONE")
    if len(pool.get("instances", ())) > 200:
        raise refuse("instances", "at most 200 instances when a pool is created")


def check_group(group: Json) -> None:
    group |= {"size": 0, "fingerprint": fingerprint(group.get("namedPorts", []))}


CHECKS = {
    "firewalls": check_firewall,
    "forwardingRules": check_rule,
    "httpHealthChecks": check_health_check,
    "healthChecks": check_health_check,
    "routes": check_route,
    "backendServices": check_backend_service,
    "targetPools": check_pool,
    "instanceGroups": check_group,
}
"""Fill in the defaults of a new resource, by collection; raise `Refusal`."""
