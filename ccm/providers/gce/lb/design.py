"""The parts that a Service asks for, as Google has them, and in what the ones there differ."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ccm.model.objects import Json, mapping, objects, text
from ccm.model.records import differences
from ccm.model.service import Service
from ccm.providers.gce.config import Place
from ccm.providers.gce.ids import path_of_url
from ccm.providers.gce.lb.names import Names
from ccm.providers.gce.lb.request import KUBE_PROXY, MAX_PORTS, BalancerRequest

PROBES = ("130.211.0.0/22", "209.85.152.0/22", "209.85.204.0/22", "35.191.0.0/16")
"""Where Google's health checks and proxies come from; upstream's flag has the same by default."""
TIMES = {"checkIntervalSec": 8, "timeoutSec": 1, "healthyThreshold": 1, "unhealthyThreshold": 3}
"""Of health checks; longer ones that are there stay."""
RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
"""Ports of a firewall."""
POOL, SERVICE = "targetPools", "backendServices"
URLS = ("target", "backendService", "network", "subnetwork", "healthChecks")
READ_ONLY = ("id", "kind", "selfLink", "creationTimestamp", "fingerprint")


def firewall(
    names: Names, request: BalancerRequest, place: Place, ip: str, tags: Sequence[str]
) -> Json:
    """What admits the Service's traffic to its address on the Nodes."""
    return {
        "name": names.firewall,
        "description": names.firewall_description(ip),
        "network": place.network,
        "sourceRanges": sorted(map(str, request.ranges)),
        "destinationRanges": [ip],
        "targetTags": [*tags],
        "allowed": [{"IPProtocol": request.protocol.lower(), "ports": _ranges(request.ports)}],
    }


def without_given_up(firewall: Json, service: Service) -> Json:
    """A Service's firewall without ports that nodes do not serve for the Service any more.

    Nodes have its address, so what kube-proxy hands on no more reaches what listens on the machine.
    """
    asked = [(protocol.lower(), int(port)) for protocol, port in service.proxied]
    allowed = list[Json]()
    for each in objects(firewall.get("allowed")):
        protocol, ports = text(each.get("IPProtocol")).lower(), each.get("ports") or ()
        bounds = [RANGE.fullmatch(text(item)) for item in ports]
        kept = {
            port
            for name, port in asked
            if name == protocol
            for bound in bounds
            if bound and int(bound[1]) <= port <= int(bound[2] or bound[1])
        }
        if not (ports and protocol in ("tcp", "udp")):
            allowed.append(each)
        elif kept:
            allowed.append({**each, "ports": _ranges(sorted(kept))})
    return {**firewall, "allowed": allowed}


def _ranges(ports: Sequence[int]) -> list[str]:
    """Ports in order, as a firewall has them: those in a row as one range."""
    ranges: list[list[int]] = []
    for port in ports:
        if ranges and port == ranges[-1][1] + 1:
            ranges[-1][1] = port
        else:
            ranges.append([port, port])
    return [f"{low}-{high}" if low != high else f"{low}" for low, high in ranges]


def check_firewall(
    names: Names, request: BalancerRequest, place: Place, ip: str, tags: Sequence[str]
) -> Json:
    """What admits the probes: of the shared check those of all Services, to whatever address.

    Upstream's has the address of the first Service alone.
    """
    description, is_local = "", request.is_local
    if not request.is_internal:
        shared = f'{{"kubernetes.io/cluster-id":"{names.cluster_id}"}}'
        description = names.firewall_description(ip) if is_local else shared
    return {
        "name": names.check_firewall(is_local, request.is_internal),
        "description": description,
        "network": place.network,
        "sourceRanges": [*PROBES],
        "destinationRanges": [ip] if is_local and not request.is_internal else [],
        "targetTags": [*tags],
        "allowed": [{"IPProtocol": "tcp", "ports": [str((request.check or KUBE_PROXY).port)]}],
    }


def health_check(names: Names, request: BalancerRequest) -> Json:
    """An HTTP health check; internal load balancers take those of the newer kind alone."""
    asked = request.check or KUBE_PROXY
    where = {"port": asked.port, "requestPath": asked.path}
    return {
        "name": names.check(request.is_local),
        "description": names.check_description(request.is_local, request.is_internal),
        **TIMES,
        **({"type": "HTTP", "httpHealthCheck": where} if request.is_internal else where),
    }


def address(names: Names, request: BalancerRequest, ip: str, tier: str) -> Json:
    """What holds the address while rules are replaced."""
    kind = "INTERNAL" if request.is_internal else "EXTERNAL"
    made: Json = {"name": names.balancer, "description": names.description, "addressType": kind}
    more = {"address": ip, "subnetwork": request.subnetwork}
    more["networkTier"] = "" if request.is_internal else tier
    return made | {key: value for key, value in more.items() if value}


def rule(
    names: Names, request: BalancerRequest, place: Place, ip: str, tier: str, backend: str
) -> Json:
    """The forwarding rule, made last: when it is there, all is."""
    made: Json = {
        "name": names.balancer,
        "description": names.marked_description,
        "IPAddress": ip,
        "IPProtocol": request.protocol,
    }
    if not request.is_internal:
        ports = f"{request.ports[0]}-{request.ports[-1]}"
        return made | {"portRange": ports, "target": backend, "networkTier": tier}
    has_all = len(request.ports) > MAX_PORTS
    ports_of_it = {"allPorts": True} if has_all else {"ports": [*map(str, request.ports)]}
    made |= {"loadBalancingScheme": "INTERNAL", "backendService": backend, **ports_of_it}
    made |= {"network": place.network, "allowGlobalAccess": request.has_global_access}
    return made | ({"subnetwork": request.subnetwork} if request.subnetwork else {})


def is_rule_right(desired: Json, record: Json) -> bool:
    """Whether a rule needs no replacement; it cannot be changed."""
    counted = {key: value for key, value in desired.items() if key != "description"}
    unset = {key: record[key] for key in ("ports", "allPorts") if record.get(key)}
    missing = {key: value for key, value in unset.items() if key not in desired}
    return not changes(counted, record) and not missing


def changes(desired: Json, record: Json) -> Json:
    """The fields that a part has otherwise; URLs of any form are equal, longer times are right."""

    def counts(key: str, value: Any) -> Any:
        if key in TIMES:
            return min(int(value or 0), TIMES[key])
        if key in URLS:
            urls = value if isinstance(value, list) else [value]
            return [path_of_url(text(url), "") for url in urls if url]
        if key == "backends":
            return [path_of_url(text(item.get("group")), "") for item in objects(value)]
        if key == "allowed":
            return [
                {"IPProtocol": item.get("IPProtocol"), "ports": item.get("ports")}
                for item in value or ()
            ]
        if key == "httpHealthCheck":
            return {name: mapping(value).get(name) for name in ("port", "requestPath")}
        return value

    return differences(desired, record, counts)


def merged(record: Mapping[str, Any], desired: Json) -> Json:
    """A part as it is to be, for a PUT: what others gave it stays, and what is empty goes."""
    kept = {key: value for key, value in record.items() if key not in READ_ONLY}
    times = {key: max(value, record.get(key, 0)) for key, value in TIMES.items() if key in desired}
    whole = kept | desired | times
    return {key: value for key, value in whole.items() if value not in ([], "", None)}
