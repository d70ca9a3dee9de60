"""Nodes and machines for tests: a plain one, and tweaks that make it special."""

from collections.abc import Callable, Mapping, Sequence

from ccm.model.cloud import AddressType, Instance, NodeAddress
from ccm.model.objects import PROVIDED_NODE_IP, UNINITIALIZED_TAINT, Json, Node

Tweak = Callable[[Json], None]

TAINT: Json = {"key": UNINITIALIZED_TAINT, "value": "true", "effect": "NoSchedule"}
OTHER_TAINT: Json = {"key": "dedicated", "value": "gpu", "effect": "NoExecute"}


def node(*tweaks: Tweak, name: str = "node-1") -> Node:
    """A Node as the API server has it, without taint, provider ID, labels and addresses."""
    raw: Json = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-of-{name}", "resourceVersion": "1"},
        "spec": {},
        "status": {},
    }
    for tweak in tweaks:
        tweak(raw)
    return Node(raw)


def tainted(raw: Json) -> None:
    raw["spec"].setdefault("taints", []).append(TAINT)


def with_taint(taint: Json) -> Tweak:
    return lambda raw: raw["spec"].setdefault("taints", []).append(taint)


def ready(raw: Json) -> None:
    raw["status"]["conditions"] = [{"type": "Ready", "status": "True"}]


def with_provider_id(provider_id: str) -> Tweak:
    return lambda raw: raw["spec"].update(providerID=provider_id)


def labelled(labels: Mapping[str, str]) -> Tweak:
    return lambda raw: raw["metadata"].update(labels=dict(labels))


def provided_ip(value: str) -> Tweak:
    return lambda raw: (
        raw["metadata"].setdefault("annotations", {}).update({PROVIDED_NODE_IP: value})
    )


def with_addresses(*entries: str) -> Tweak:
    return lambda raw: raw["status"].update(addresses=address_json(*entries))


def recreated(raw: Json) -> None:
    """Another object under the same name."""
    raw["metadata"]["uid"] += "-again"


# The cloud's side. An address is written "InternalIP 10.0.0.1".


def address(entry: str) -> NodeAddress:
    kind, _, value = entry.partition(" ")
    return NodeAddress(AddressType(kind), value)


def addresses(*entries: str) -> tuple[NodeAddress, ...]:
    return tuple(address(entry) for entry in entries)


def address_json(*entries: str) -> list[Json]:
    return [{"type": str(one.type), "address": one.address} for one in addresses(*entries)]


def shown(entries: Sequence[NodeAddress]) -> list[str]:
    return [f"{entry.type} {entry.address}" for entry in entries]


def machine(provider_id: str = "fake://12345", *entries: str, **known: str) -> Instance:
    """A machine with these addresses; `known` are its type, zone and region."""
    return Instance(provider_id, addresses=addresses(*entries), **known)  # type: ignore[arg-type]
