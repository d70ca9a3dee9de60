"""Nodes and machines for tests: a plain one, and tweaks that make it special."""

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy

from ccm.model.cloud import AddressType, Instance, NodeAddress
from ccm.model.objects import PROVIDED_NODE_IP, UNINITIALIZED_TAINT, Json, Node

Tweak = Callable[[Json], object]

SCHEME = "fake"
PROVIDER_IDS = re.compile(f"{SCHEME}://.*")
OLD = "2020-01-01T00:00:00Z"

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


def created(at: str) -> Tweak:
    return lambda raw: raw["metadata"].update(creationTimestamp=at)


def with_finalizer(name: str) -> Tweak:
    return lambda raw: raw["metadata"].setdefault("finalizers", []).append(name)


def recreated(raw: Json) -> None:
    """Another object under the same name."""
    raw["metadata"]["uid"] += "-again"


# What matters to routes.


def routed(name: str, *cidrs: str, tweaks: tuple[Tweak, ...] = ()) -> Node:
    """A Node of our cloud on machine `fake://<name>`, with these pod CIDRs."""
    return node(with_provider_id(f"{SCHEME}://{name}"), with_pod_cidrs(*cidrs), *tweaks, name=name)


def with_pod_cidrs(*cidrs: str) -> Tweak:
    def tweak(raw: Json) -> None:
        for key in ("podCIDR", "podCIDRs"):
            raw["spec"].pop(key, None)
        if cidrs:
            raw["spec"].update(podCIDR=cidrs[0], podCIDRs=list(cidrs))

    return tweak


def with_conditions(*conditions: Json) -> Tweak:
    return lambda raw: raw["status"].update(conditions=list(conditions))


def with_condition(status: str, reason: str, message: str = "") -> Tweak:
    """Its `NetworkUnavailable`, as it became long ago."""
    return with_conditions(
        {"type": "Ready", "status": "True", "reason": "KubeletReady"},
        {
            "type": "NetworkUnavailable",
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": OLD,
            "lastTransitionTime": OLD,
        },
    )


def changed(before: Node, *tweaks: Tweak) -> Node:
    raw = deepcopy(before.raw)
    for tweak in tweaks:
        tweak(raw)
    return Node(raw)


def network_condition(of: Node) -> Json:
    """`NetworkUnavailable`; empty when there is none."""
    conditions: list[Json] = of.raw["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] == "NetworkUnavailable"), {})


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
