"""What to do about one Node, given what its machine is: pure decisions, and their patches."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import assert_never
from urllib.parse import quote

from ccm.model.cloud import Answer, Instance, PowerState
from ccm.model.objects import SHUTDOWN_TAINT, UNINITIALIZED_TAINT, Json, Node
from ccm.model.writes import Patch
from workers.node.metadata import (
    AddressProblem,
    agreeing_labels,
    desired_addresses,
    followed_labels,
    missing_labels,
)

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
    """Yield what makes a tainted `node` an initialised one; nothing for one without the taint.

    Addresses come first: a node that is schedulable has its addresses. A crash between two actions
    is safe: planning again from what is there then yields the remaining ones.
    """
    if not node.is_uninitialized:
        return
    if not (node.provider_id or instance.provider_id):
        raise CannotPlan(f"cloud provider does not set node provider ID for node {node.name}")
    yield from _plan_addresses(node, instance)
    yield Initialize(
        labels=missing_labels(instance, node.labels),
        provider_id="" if node.provider_id else instance.provider_id,
        taints_left=[taint for taint in node.taints if taint.get("key") != UNINITIALIZED_TAINT],
    )


def follow(node: Node, instance: Instance | None, beta_wins: bool) -> Iterator[Action]:
    """Yield what makes an initialised `node` what its machine is by now; None when that is unknown.

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
    try:
        addresses = desired_addresses(node, instance.addresses)
    except AddressProblem as problem:
        raise CannotPlan(str(problem)) from problem
    if addresses and addresses != node.addresses:
        yield SetAddresses(addresses)


def is_watched(node: Node, scheme: str) -> bool:
    """Whether the cloud is asked about `node` in each monitor pass: ours, and not Ready.

    A Ready node that still carries our shutdown taint is only waiting for its removal.
    """
    return not node.is_ready and not node.is_foreign(scheme)


def plan_power(node: Node, answer: Answer | None) -> Iterator[SetTaints]:
    """Yield the change that makes the shutdown taint follow the machine's power, both ways.

    A Ready node never carries it, whatever the cloud says; without a positive answer about a node
    that is not Ready, nothing changes. (Upstream removes the taint only once the node is Ready.)
    """
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


def _is_shutdown(taint: Json) -> bool:
    return taint.get("key") == SHUTDOWN_TAINT and taint.get("effect") == "NoSchedule"


def patch_for(node: Node, action: Action) -> Patch:
    """The write for `action`; it fails with 422 when `node` is not what it was.

    No `resourceVersion` is involved, because that changes with every heartbeat: each patch tests
    the identity of the object and the very list that it replaces.
    """
    path = f"/api/v1/nodes/{quote(node.name)}"
    same_object: Json = {"op": "test", "path": "/metadata/uid", "value": node.uid}
    match action:
        case SetAddresses(addresses):
            seen: Json = {
                "op": "test",
                "path": "/status/addresses",
                "value": node.addresses or None,
            }
            change: Json = {"op": "add", "path": "/status/addresses", "value": addresses}
            return Patch(f"{path}/status", (same_object, seen, change))
        case Initialize(labels, provider_id, taints_left):
            taints = _taints(node, taints_left)
            set_id: Json = {"op": "add", "path": "/spec/providerID", "value": provider_id}
            rest = [*_labels(node, labels), *([set_id] if provider_id else ())]
            return Patch(path, (same_object, *taints, *rest))
        case SetLabels(labels):
            return Patch(path, (same_object, *_labels(node, labels)))
        case SetTaints(wanted):
            return Patch(path, (same_object, *_taints(node, wanted)))
        case _:
            assert_never(action)


def _taints(node: Node, wanted: list[Json]) -> tuple[Json, Json]:
    """Replace the list that we saw; a missing list tests equal to null and cannot be replaced."""
    seen: Json = {"op": "test", "path": "/spec/taints", "value": node.taints or None}
    if not wanted:
        return seen, {"op": "remove", "path": "/spec/taints"}
    return seen, {"op": "add", "path": "/spec/taints", "value": wanted}


def _labels(node: Node, labels: Mapping[str, str]) -> list[Json]:
    if labels and not node.has_labels:
        return [
            {"op": "test", "path": "/metadata/labels", "value": None},
            {"op": "add", "path": "/metadata/labels", "value": dict(labels)},
        ]
    return [
        {"op": "add", "path": f"/metadata/labels/{_escaped(key)}", "value": value}
        for key, value in labels.items()
    ]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
