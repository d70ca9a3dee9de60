"""What the cluster asks for, compared with what the cloud holds: its own reading of the objects.

Nothing in here is taken from the controllers, so that they cannot be wrong together.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

Json = dict[str, Any]

CLUSTER = "kubernetes"
SCHEME = "simulated://"
DRIVER = "simulated.csi.ccm"
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
BALANCER_SCHEME = "service.beta.kubernetes.io/simulated-load-balancer-scheme"
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"


@dataclass(frozen=True)
class Observed:
    """Cluster and cloud at about the same time. `expected` is the UID of each Node to be there.

    `strangers` is what the cloud held of others, before anything of ours was in it.
    """

    nodes: list[Json]
    services: list[Json]
    volumes: list[Json]
    cloud: Json
    expected: Mapping[str, str]
    strangers: Json

    @property
    def machines(self) -> dict[str, Json]:
        """Those that exist, by ID."""
        return {m["id"]: m for m in self.cloud["machines"] if m["power"] != "terminated"}

    @property
    def ours(self) -> list[Json]:
        """Nodes that are of no other cloud."""
        return [node for node in self.nodes if _provider_id(node).startswith(SCHEME)]


def differences(observed: Observed) -> list[str]:
    """Everything that is not as it should be; a sentence each."""
    return [
        *_membership(observed),
        *(found for node in observed.ours for found in _node(node, observed)),
        *_routes(observed),
        *_balancers(observed),
        *(found for service in observed.services for found in _service(service, observed)),
        *(found for volume in observed.volumes for found in _volume(volume, observed)),
    ]


def _membership(observed: Observed) -> Iterator[str]:
    there = {node["metadata"]["name"]: node["metadata"]["uid"] for node in observed.nodes}
    for name, uid in observed.expected.items():
        if there.get(name) != uid:
            yield f"node {name} is lost"
    for name in there.keys() - observed.expected.keys():
        yield f"node {name} is there although its machine ended"


def _node(node: Json, observed: Observed) -> Iterator[str]:
    name = node["metadata"]["name"]
    machine = observed.machines.get(_machine_id(node))
    if machine is None or machine["name"] != name:
        yield f"node {name} has provider ID {_provider_id(node)!r}: no machine of its name"
        return
    taints = {taint["key"] for taint in node["spec"].get("taints", ())}
    if UNINITIALIZED in taints:
        yield f"node {name} is not initialized"
    if (SHUTDOWN in taints) != (machine["power"] == "stopped"):
        yield f"node {name} has taints {sorted(taints)}, its machine is {machine['power']}"
    labels = node["metadata"]["labels"]
    if (labels.get(ZONE), labels.get(REGION)) != (machine["zone"], machine["region"]):
        yield f"node {name} has labels {labels}"
    if node["status"].get("addresses") != machine["addresses"]:
        yield f"node {name} has addresses {node['status'].get('addresses')}"
    network = [c for c in node["status"]["conditions"] if c["type"] == "NetworkUnavailable"]
    if [condition["status"] for condition in network] != ["False"]:
        yield f"node {name} has as to its network {network}"


def _routes(observed: Observed) -> Iterator[str]:
    """Exactly one active route to each pod network of each Node, and no other of ours."""
    names = {_machine_id(node): node["metadata"]["name"] for node in observed.ours}
    wanted = {
        f"{cidr} to {_machine_id(node)} of {node['metadata']['name']}"
        for node in observed.ours
        for cidr in node["spec"]["podCIDRs"]
    }
    routes = _with_mark(observed.cloud["routes"])
    there = [f"{r['cidr']} to {r['machine_id']} of {names.get(r['machine_id'])}" for r in routes]
    yield from _compared("route", wanted, there)
    yield from (f"route {r['cidr']} is a {r['state']}" for r in routes if r["state"] != "active")
    yield from _unowned("routes", observed)


def _balancers(observed: Observed) -> Iterator[str]:
    names = {s["metadata"]["uid"]: s["metadata"]["name"] for s in observed.services}
    wanted = {s["metadata"]["name"] for s in observed.services if _wants_balancer(s)}
    records = _with_mark(observed.cloud["load_balancers"])
    there = [names.get(r["tags"]["service"], r["tags"]["service"]) for r in records]
    yield from _compared("balancer", wanted, there)
    yield from _unowned("load_balancers", observed)


def _service(service: Json, observed: Observed) -> Iterator[str]:
    meta = service["metadata"]
    name, uid = meta["name"], meta["uid"]
    records = [
        b for b in _with_mark(observed.cloud["load_balancers"]) if b["tags"]["service"] == uid
    ]
    if "deletionTimestamp" in meta:
        yield f"service {name} is still being deleted"
    is_wanted = _wants_balancer(service)
    if (FINALIZER in meta.get("finalizers", ())) != is_wanted:
        yield f"service {name} has finalizers {meta.get('finalizers')}"
    reported = [way["ip"] for way in service["status"]["loadBalancer"].get("ingress", ())]
    if reported != [record["ip"] for record in records]:
        yield f"service {name} says {reported}"
    if is_wanted and records:
        for key, value in _record(service, observed).items():
            if (found := _sorted(records[0][key])) != value:
                yield f"service {name} has as {key} {found} instead of {value}"


def _record(service: Json, observed: Observed) -> Json:
    """What the balancer of a Service has to be."""
    spec, annotations = service["spec"], service["metadata"].get("annotations", {})
    annotated = [text for text in annotations.get(RANGES, "").split(",") if text]
    health = {"path": "/healthz", "port": spec.get("healthCheckNodePort")}
    return {
        "state": "active",
        "scheme": annotations.get(BALANCER_SCHEME, "internet"),
        "listeners": _sorted(
            {"protocol": p["protocol"], "port": p["port"], "node_port": p["nodePort"]}
            for p in spec["ports"]
        ),
        "source_ranges": _sorted(spec.get("loadBalancerSourceRanges") or annotated),
        "backends": _sorted(
            _machine_id(n) for n in observed.ours if EXCLUDED not in n["metadata"]["labels"]
        ),
        "health_check": health if spec["externalTrafficPolicy"] == "Local" else {},
    }


def _volume(volume: Json, observed: Observed) -> Iterator[str]:
    name, handle = volume["metadata"]["name"], volume["spec"]["csi"]["volumeHandle"]
    places = {place["id"]: place for place in observed.cloud["volumes"]}
    if (place := places.get(handle)) is None:
        yield f"volume {name} is {handle}, which the cloud does not have"
        return
    labels = volume["metadata"].get("labels", {})
    if labels != {ZONE: "__".join(place["zones"]), REGION: place["region"]}:
        yield f"volume {name} has labels {labels}"
    in_place = [
        {"key": ZONE, "operator": "In", "values": place["zones"]},
        {"key": REGION, "operator": "In", "values": [place["region"]]},
    ]
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": in_place}]}}
    if volume["spec"].get("nodeAffinity") != affinity:
        yield f"volume {name} has affinity {volume['spec'].get('nodeAffinity')}"


def _wants_balancer(service: Json) -> bool:
    return bool(service["spec"]["type"] == "LoadBalancer")


def _provider_id(node: Json) -> str:
    return str(node["spec"].get("providerID", SCHEME))


def _machine_id(node: Json) -> str:
    return _provider_id(node).removeprefix(SCHEME)


def _with_mark(records: Iterable[Json]) -> list[Json]:
    return [record for record in records if record["tags"].get("cluster") == CLUSTER]


def _unowned(kind: str, observed: Observed) -> Iterator[str]:
    there = [record for record in observed.cloud[kind] if record["tags"].get("cluster") != CLUSTER]
    if there != observed.strangers[kind]:
        yield f"{kind} of others are {there} and were {observed.strangers[kind]}"


def _compared(what: str, wanted: set[str], there: list[str]) -> Iterator[str]:
    for name in sorted(wanted | set(there)):
        if there.count(name) != (name in wanted):
            yield f"{what} {name} is there {there.count(name)} times"


def _sorted(value: Any) -> Any:
    """Lists without their order, whatever the order of keys in what they hold."""
    if isinstance(value, str | dict):
        return value
    return sorted(value, key=lambda item: orjson.dumps(item, option=orjson.OPT_SORT_KEYS))
