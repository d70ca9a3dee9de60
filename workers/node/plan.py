"""What to do about one Node, given what its machine is: pure decisions, and their writes.

Type, zone and region of a machine each have a GA label and an older beta one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import islice
from typing import assert_never
from urllib.parse import quote

from ccm.model.cloud import AddressType, Answer, Instance, NodeAddress, PowerState
from ccm.model.objects import (
    MOST_ENTRIES,
    SHUTDOWN_TAINT,
    UNINITIALIZED_TAINT,
    Json,
    Node,
    expect_same,
    is_label,
    label_path,
    replace_seen,
)
from ccm.model.writes import Patch

Ip = IPv4Address | IPv6Address

_OCTET = re.compile("[0-9]+")
_TYPE = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_ZONE = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_REGION = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
_PAIRS = (_TYPE, _ZONE, _REGION)
_PLACE_KEYS = {*_TYPE, *_ZONE, *_REGION}
_RESERVED = re.compile(r"(^|\.)(kubernetes|k8s)\.io/")

MOST_ADDRESSES, MAX_ADDRESS = 1000, 253  # of a Node, of characters: more and it is too large
MOST_LABELS = 100  # that a cloud adds
MOST_READ = 100  # addresses of a Node, which its kubelet may write in any number
REPLACE: Json = {"$patch": "replace"}
SHUTDOWN: Json = {"key": SHUTDOWN_TAINT, "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True)
class SetAddresses:
    """Replace `status.addresses`."""

    addresses: list[Json]


@dataclass(frozen=True, slots=True)
class Initialize:
    """Set labels and provider ID and take the uninitialized taint away, in one write.

    `provider_id` is empty when the Node has one already.
    """

    labels: Mapping[str, str]
    provider_id: str
    taints_left: list[Json]


@dataclass(frozen=True, slots=True)
class SetTaints:
    """Replace `spec.taints`."""

    taints: list[Json]


@dataclass(frozen=True, slots=True)
class SetLabels:
    """Add or change these labels; the others stay."""

    labels: Mapping[str, str]


Action = SetAddresses | Initialize | SetTaints | SetLabels


class CannotPlan(Exception):
    """What the cloud says does not fit this Node; nothing is written until something changes."""


def plan(node: Node, instance: Instance) -> Iterator[Action]:
    """Yield what makes a tainted `node` an initialized one; nothing for one without the taint.

    Addresses come first: a node that is schedulable has its addresses. A crash between two actions
    is safe: planning again from what is there then yields the remaining ones.
    """
    if not node.is_uninitialized:
        return
    if not _has_all_taints(node):
        raise CannotPlan(f"node {node.name} has too many taints: those that we write would be less")
    if not (node.provider_id or instance.provider_id):
        raise CannotPlan(f"cloud provider does not set node provider ID for node {node.name}")
    yield from _plan_addresses(node, instance)
    yield Initialize(
        labels=missing_labels(instance, node.labels),
        provider_id="" if node.provider_id else instance.provider_id,
        taints_left=[taint for taint in node.taints if taint.get("key") != UNINITIALIZED_TAINT],
    )


def plan_update(node: Node, instance: Instance | None, beta_wins: bool) -> Iterator[Action]:
    """Yield what makes an initialized `node` what its machine is by now; None when that is unknown.

    Labels of GA and beta keys are made to agree in any case.
    """
    labels = agreeing_labels(node.labels, beta_wins)
    if instance:
        labels |= followed_labels(instance, {**node.labels, **labels})
    if labels:
        yield SetLabels(labels)
    if instance:
        yield from _plan_addresses(node, instance)


def _plan_addresses(node: Node, instance: Instance) -> Iterator[SetAddresses]:
    addresses = desired_addresses(node, instance.addresses)
    if addresses and addresses != node.addresses:
        yield SetAddresses(addresses)


def is_refreshed(node: Node, provider_ids: re.Pattern[str]) -> bool:
    """Whether its machine may change it: without a provider ID its kubelet sets the addresses."""
    is_initialized = bool(node.provider_id) and not node.is_uninitialized
    return is_initialized and not node.is_foreign(provider_ids) and not node.is_being_deleted


def is_watched(node: Node, provider_ids: re.Pattern[str]) -> bool:
    """Whether the cloud is asked about `node` in each monitor pass: ours, and not Ready.

    A Ready node that still carries our shutdown taint is only waiting for its removal. One that is
    being deleted, and held by a finalizer, is done: it takes no permit from those that are not.
    """
    is_done = node.is_ready or node.is_being_deleted
    return not is_done and not node.is_foreign(provider_ids)


def plan_power(node: Node, answer: Answer | None) -> Iterator[SetTaints]:
    """Yield the change that makes the shutdown taint follow the machine's power, both ways.

    A Ready node never carries it, whatever the cloud says; without a positive answer about a node
    that is not Ready, nothing changes. (Upstream removes the taint only once the node is Ready.)
    """
    if not _has_all_taints(node):
        return
    others = [taint for taint in node.taints if not _is_shutdown(taint)]
    has_taint = len(others) < len(node.taints)
    if node.is_ready:
        is_off = False
    elif isinstance(answer, Instance) and answer.power is not PowerState.UNKNOWN:
        is_off = answer.power is PowerState.STOPPED
    else:
        return
    if is_off and not has_taint:
        yield SetTaints([*others, SHUTDOWN])
    elif has_taint and not is_off:
        yield SetTaints(others)


def _has_all_taints(node: Node) -> bool:
    """Whether none was cut off: all of them are written, and a kubelet may begin with thousands."""
    return len(node.taints) < MOST_ENTRIES


def _is_shutdown(taint: Json) -> bool:
    return taint.get("key") == SHUTDOWN_TAINT and taint.get("effect") == "NoSchedule"


def missing_labels(instance: Instance, present: Mapping[str, str]) -> dict[str, str]:
    """What to add or change on a Node that carries `present`.

    Type, zone and region overwrite, under the GA and the beta key, unless the cloud does not say.
    A label that the cloud adds on top never overwrites, and never a reserved key. What cannot be a
    label is left out: the API server would refuse all that is written with it.
    """
    wanted = {**_added_labels(instance), **_place_labels(instance)}
    return {
        key: value
        for key, value in wanted.items()
        if present.get(key) != value
        and (key not in present or key in _PLACE_KEYS)
        and is_label(key, value)
    }


def impossible_labels(instance: Instance) -> list[str]:
    """What the cloud says and cannot be a label, for people."""
    wanted = {**_added_labels(instance), **_place_labels(instance)}
    return [f"{key}={value!r}" for key, value in wanted.items() if not is_label(key, value)]


def _place_labels(instance: Instance) -> dict[str, str]:
    values = (instance.type, instance.zone, instance.region)
    return {key: value for keys, value in zip(_PAIRS, values, strict=True) if value for key in keys}


def _added_labels(instance: Instance) -> dict[str, str]:
    added = islice(instance.labels.items(), MOST_LABELS)
    return {key: value for key, value in added if not _RESERVED.search(key)}


def followed_labels(instance: Instance, present: Mapping[str, str]) -> dict[str, str]:
    """The same for a Node that was initialized before: a beta key that it lacks stays away."""
    dropped = {beta for _, beta in _PAIRS if beta not in present}
    wanted = missing_labels(instance, present)
    return {key: value for key, value in wanted.items() if key not in dropped}


def agreeing_labels(present: Mapping[str, str], beta_wins: bool) -> dict[str, str]:
    """What makes each pair agree: the GA key holds the truth, unless `beta_wins` (upstream's way).

    A missing GA key gets the beta key's value; a missing beta key stays away.
    """
    wanted: dict[str, str] = {}
    for ga, beta in _PAIRS:
        if beta in present and present.get(ga) != present[beta]:
            keep_beta = beta_wins or ga not in present
            wanted |= {ga: present[beta]} if keep_beta else {beta: present[ga]}
    return wanted


def desired_addresses(node: Node, offered: Sequence[NodeAddress]) -> list[Json]:
    """`status.addresses` for `node`; empty when the cloud offers none, which means "leave them".

    A host name that only the Node knows is kept. Raises `CannotPlan` when the kubelet's
    `--node-ip` (annotation `alpha.kubernetes.io/provided-node-ip`) is not among the offered.
    """
    addresses = [item for item in dict.fromkeys(offered) if len(item.address) <= MAX_ADDRESS]
    if not addresses:
        return []
    if not any(address.type is AddressType.HOSTNAME for address in addresses):
        addresses += _own_host_names(node)
    if node.provided_node_ip is not None:
        addresses = prefer(addresses, node.provided_node_ip)
    kept = addresses[:MOST_ADDRESSES]
    return [{"type": str(address.type), "address": address.address} for address in kept]


def _own_host_names(node: Node) -> Iterable[NodeAddress]:
    for entry in node.addresses[:MOST_READ]:
        if entry.get("type") == AddressType.HOSTNAME and isinstance(entry.get("address"), str):
            yield NodeAddress(AddressType.HOSTNAME, entry["address"])


def prefer(offered: Sequence[NodeAddress], provided: str) -> list[NodeAddress]:
    """The offered addresses with the provided IPs first and alone of their type (upstream's rule).

    `provided` is one IP, or two of different families joined by a comma. IPs are compared as
    numbers; the cloud's spelling is kept.
    """
    first: list[NodeAddress] = []
    for wanted in _provided_ips(provided):
        matching = [address for address in offered if _parse(address.address) == wanted]
        if not matching:
            raise CannotPlan(
                f"failed to get node address from cloud provider that matches ip: {wanted}"
            )
        first += matching
    claimed = {address.type for address in first}
    return first + [address for address in offered if address.type not in claimed]


def _provided_ips(provided: str) -> list[Ip]:
    ips = [_parse(part) for part in provided.split(",")]
    known = [ip for ip in ips if ip is not None]
    is_pair = len(known) == 2 and known[0].version != known[1].version
    if len(known) != len(ips) or not (len(known) == 1 or is_pair):
        raise CannotPlan(f"{provided!r} is neither one IP nor one of each family")
    if is_pair and any(ip.is_unspecified for ip in known):
        raise CannotPlan(f"{provided!r} contains an unspecified IP")
    return known


def _parse(text: str) -> Ip | None:
    """An IP, or None; leading zeros in IPv4 are accepted as decimal, as kubelets write them."""
    octets = text.split(".")
    if len(octets) == 4 and all(_OCTET.fullmatch(octet) for octet in octets):
        text = ".".join(octet.lstrip("0") or "0" for octet in octets)
    try:
        ip = ip_address(text)
    except ValueError:
        return None
    return getattr(ip, "ipv4_mapped", None) or ip


def message_for(action: Action) -> str:
    """What the log says when the write for `action` is done."""
    match action:
        case SetAddresses():
            return "node addresses changed"
        case Initialize():
            return "node initialized"
        case SetLabels():
            return "node labels changed"
        case SetTaints(taints):
            is_shut_down = any(map(_is_shutdown, taints))
            return "shutdown taint set" if is_shut_down else "shutdown taint removed"


# Their writes.


def patch_for(node: Node, action: Action, version: int = 0) -> Patch:
    """The write for `action`; it fails when `node` is not what it was.

    A Node's version changes with every heartbeat. So the operations test the identity of the object
    and the very list that they replace; `version` is that of all of `node`, when it is known.
    """
    path = f"/api/v1/nodes/{quote(node.name)}"
    if isinstance(action, SetAddresses):
        path = f"{path}/status"
    operations = (expect_same(node), *_operations(node, action))
    return Patch(path, operations, _merge(node, action, version) if version else None)


def written(seen: Json, action: Action, metadata: Json) -> Json:
    """What `seen` is after `action`, when nothing else wrote; `metadata` is all of that then."""
    spec, status = dict(seen.get("spec") or {}), dict(seen.get("status") or {})
    match action:
        case SetAddresses(addresses):
            status["addresses"] = addresses
        case Initialize(_, provider_id, taints_left):
            spec["taints"] = taints_left
            if provider_id:
                spec["providerID"] = provider_id
        case SetTaints(taints):
            spec["taints"] = taints
        case SetLabels():
            pass
        case _:
            assert_never(action)
    if not spec.get("taints"):
        spec.pop("taints", None)
    return {**seen, "metadata": metadata, "spec": spec, "status": status}


def _operations(node: Node, action: Action) -> Iterable[Json]:
    match action:
        case SetAddresses(addresses):
            return replace_seen("/status/addresses", node.addresses or None, addresses)
        case Initialize(labels, provider_id, taints_left):
            set_id: Json = {"op": "add", "path": "/spec/providerID", "value": provider_id}
            rest = [*_label_operations(node, labels), *([set_id] if provider_id else ())]
            return (*_taint_operations(node, taints_left), *rest)
        case SetLabels(labels):
            return _label_operations(node, labels)
        case SetTaints(taints):
            return _taint_operations(node, taints)
        case _:
            assert_never(action)


def _taint_operations(node: Node, wanted: list[Json]) -> tuple[Json, Json]:
    return replace_seen("/spec/taints", node.taints or None, wanted or None)


def _label_operations(node: Node, labels: Mapping[str, str]) -> Iterable[Json]:
    if labels and not node.has_labels:
        return replace_seen("/metadata/labels", None, dict(labels))
    return [{"op": "add", "path": label_path(key), "value": value} for key, value in labels.items()]


def _merge(node: Node, action: Action, version: int) -> Json:
    """The same as a strategic merge patch of this version."""
    metadata: Json = {"uid": node.uid, "resourceVersion": str(version)}
    match action:
        case SetAddresses(addresses):
            # Without the directive, addresses of one type would be merged into one.
            return {"metadata": metadata, "status": {"addresses": [*addresses, REPLACE]}}
        case Initialize(labels, provider_id, taints_left):
            spec: Json = {"taints": taints_left or None}
            if provider_id:
                spec["providerID"] = provider_id
            return {"metadata": {**metadata, "labels": dict(labels)}, "spec": spec}
        case SetLabels(labels):
            return {"metadata": {**metadata, "labels": dict(labels)}}
        case SetTaints(taints):
            return {"metadata": metadata, "spec": {"taints": taints or None}}
        case _:
            assert_never(action)
