"""What the server decides about an object before it is stored, by kind; a kind may have no rules.

Each function is handed the object, what it was before an update, and the storage. In an update,
what the request may not change is shared with the old object below its first level: nothing there
is changed in place that was stored before.
"""

import ipaddress
import random
from collections.abc import Callable
from typing import TypeVar

from ccm.sandbox.kubernetes import kinds
from ccm.sandbox.kubernetes.errors import forbidden_field, invalid_field
from ccm.sandbox.kubernetes.objects import Object, section
from ccm.sandbox.kubernetes.storage import Storage

NAME_LABEL = "kubernetes.io/metadata.name"
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
NETWORK = ipaddress.ip_network("10.96.0.0/16")
NODE_PORTS = range(30000, 32768)
HAVING_NODE_PORTS = ("LoadBalancer", "NodePort")
# What means nothing to a Service without an address, to one without node ports, to one without a
# load balancer.
ADDRESS_FIELDS = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
NODE_PORT_FIELDS = ("externalTrafficPolicy",)
BALANCER_FIELDS = ("allocateLoadBalancerNodePorts", "loadBalancerClass")

T = TypeVar("T", int, str)
Strategy = Callable[[Object, Object | None, Storage], None]


def strategy_for(kind: kinds.ResourceKind) -> Strategy:
    """Return the strategy of a kind; it raises the 422 of an object that may not be so."""
    return _STRATEGIES.get(kind.plural, _store_as_it_comes)


def _store_as_it_comes(obj: Object, old: Object | None, storage: Storage) -> None:
    pass


def _admit_namespace(namespace: Object, old: Object | None, storage: Storage) -> None:
    meta = section(namespace, "metadata")
    section(meta, "labels")[NAME_LABEL] = meta["name"]
    section(namespace, "status").setdefault("phase", "Active")


def _admit_volume(volume: Object, old: Object | None, storage: Storage) -> None:
    """Keep the node affinity once it is set."""
    spec = section(volume, "spec")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    section(volume, "status").setdefault("phase", "Pending")
    had = old["spec"].get("nodeAffinity") if old else None
    if had and spec.get("nodeAffinity") != had:
        why = "field is immutable, except for updating from beta label to GA"
        raise invalid_field(kinds.PERSISTENT_VOLUME, volume, "nodeAffinity", why)


def _admit_node(node: Object, old: Object | None, storage: Storage) -> None:
    """Taint a new node as not ready; keep pod CIDRs and provider ID once set."""
    spec = section(node, "spec")
    if spec.get("podCIDR"):
        if spec["podCIDR"] not in spec.get("podCIDRs", ())[:1]:
            spec["podCIDRs"] = [spec["podCIDR"]]
    elif spec.get("podCIDRs"):
        spec["podCIDR"] = spec["podCIDRs"][0]
    if not spec.get("unschedulable"):
        spec.pop("unschedulable", None)
    section(node, "status")
    if old is None:
        taints = spec.setdefault("taints", [])
        if NOT_READY not in taints:
            taints.append(dict(NOT_READY))
        return
    for field, refusal in (("podCIDRs", forbidden_field), ("providerID", invalid_field)):
        had = old["spec"].get(field)
        if had and spec.get(field) != had:
            why = f'node updates may not change {field} except from "" to valid'
            raise refusal(kinds.NODE, node, f"spec.{field}", why)


def _admit_service(service: Object, old: Object | None, storage: Storage) -> None:
    """Give a Service its defaults, one address of IPv4 and its node ports."""
    spec = section(service, "spec")
    section(section(service, "status"), "loadBalancer")
    if old is not None and spec == old["spec"]:
        return
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port", 0))
    uid = section(service, "metadata").get("uid")
    stored = (each.obj for each in storage.current(kinds.SERVICE).values())
    others = [each["spec"] for each in stored if each["metadata"]["uid"] != uid]
    _give_address(spec, old["spec"] if old else {}, {each.get("clusterIP", "") for each in others})
    _give_node_ports(spec, old["spec"] if old else {}, set().union(*map(_node_ports_of, others)))
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    else:
        _drop(spec, BALANCER_FIELDS)
        service["status"]["loadBalancer"] = {}


def _give_address(spec: Object, old_spec: Object, taken: set[str]) -> None:
    if spec["type"] == "ExternalName":
        _drop(spec, ADDRESS_FIELDS)
        return
    spec.setdefault("internalTrafficPolicy", "Cluster")
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    if not spec.get("clusterIP"):
        last = NETWORK.num_addresses - 1
        drawn = old_spec.get("clusterIP") or _draw(
            taken, lambda: str(NETWORK[random.randrange(1, last)])
        )
        spec["clusterIP"] = drawn
    spec["clusterIPs"] = [spec["clusterIP"]]


def _give_node_ports(spec: Object, old_spec: Object, taken: set[int]) -> None:
    """An ExternalName keeps what it says of them, and none is given to it: as the real server."""
    ports = spec.get("ports") or ()
    if spec["type"] not in HAVING_NODE_PORTS:
        _drop(spec, NODE_PORT_FIELDS)
        had_some = old_spec.get("type") in HAVING_NODE_PORTS
        for port in ports if had_some or spec["type"] != "ExternalName" else ():
            port.pop("nodePort", None)
        return
    spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec.get("allocateLoadBalancerNodePorts") is not False:
        for port in ports:
            port["nodePort"] = port.get("nodePort") or _draw(taken, _random_node_port)
    if spec["type"] == "LoadBalancer" and spec["externalTrafficPolicy"] == "Local":
        spec.setdefault("healthCheckNodePort", _draw(taken, _random_node_port))
    else:
        spec.pop("healthCheckNodePort", None)


def _node_ports_of(spec: Object) -> set[int]:
    if spec["type"] not in HAVING_NODE_PORTS:
        return set()
    ports = {port.get("nodePort", 0) for port in spec.get("ports") or ()}
    return ports | {spec.get("healthCheckNodePort", 0)}


def _random_node_port() -> int:
    return random.choice(NODE_PORTS)


def _draw(taken: set[T], draw: Callable[[], T]) -> T:
    """Draw until something comes that is not taken; it is then."""
    while (drawn := draw()) in taken:
        pass
    taken.add(drawn)
    return drawn


def _drop(spec: Object, names: tuple[str, ...]) -> None:
    for name in names:
        spec.pop(name, None)


_STRATEGIES: dict[str, Strategy] = {
    kinds.NODE.plural: _admit_node,
    kinds.SERVICE.plural: _admit_service,
    kinds.PERSISTENT_VOLUME.plural: _admit_volume,
    kinds.NAMESPACE.plural: _admit_namespace,
}
