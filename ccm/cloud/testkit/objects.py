"""The Kubernetes objects that the kit asks about, as a cluster would hold them."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from ccm.cloud.testkit.adapter import Machine
from ccm.model.node import Node
from ccm.model.objects import Json
from ccm.model.service import Service
from ccm.model.volume import PersistentVolume


def uid_of(name: str) -> str:
    """A UID that is always the same for one name."""
    return str(uuid5(NAMESPACE_URL, name))


def node(name: str, provider_id: str = "") -> Node:
    """A Node that nothing is known of but its name and, once initialised, its provider ID."""
    spec = {"providerID": provider_id} if provider_id else {}
    return Node({"metadata": {"name": name, "uid": uid_of(name)}, "spec": spec})


def node_of(machine: Machine) -> Node:
    """The initialised Node of a machine."""
    found = node(machine.node, machine.provider_id)
    found.raw["status"] = {"addresses": [asdict(address) for address in machine.addresses]}
    return found


def port(number: int, protocol: str = "TCP", node_port: int = 30080) -> Json:
    name = f"{protocol.lower()}-{number}"
    return {
        "name": name, "port": number, "protocol": protocol, "nodePort": node_port,
        "targetPort": number,
    }  # fmt: skip


def service(
    name: str = "web", annotations: Mapping[str, str] | None = None, **spec: Any
) -> Service:
    """A Service of type LoadBalancer; `spec` replaces fields of its spec."""
    meta = {"name": name, "namespace": "default", "uid": uid_of(name)}
    usual = {
        "type": "LoadBalancer",
        "ports": [port(80)],
        "clusterIP": "10.96.0.80",
        "externalTrafficPolicy": "Cluster",
        "sessionAffinity": "None",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
    }
    return Service(
        {
            "metadata": {**meta, "annotations": dict(annotations or {})},
            "spec": {**usual, **spec},
            "status": {"loadBalancer": {}},
        }
    )


def volume(name: str, spec: Json) -> PersistentVolume:
    """A PersistentVolume with this `spec`."""
    return PersistentVolume({"metadata": {"name": name, "uid": uid_of(name)}, "spec": spec})
