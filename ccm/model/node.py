"""A read-only, lenient view on the raw JSON of a Node: a wrong object must hold up nobody."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNINITIALIZED_TAINT = "node.cloudprovider.kubernetes.io/uninitialized"
SHUTDOWN_TAINT = "node.cloudprovider.kubernetes.io/shutdown"
PROVIDED_NODE_IP = "alpha.kubernetes.io/provided-node-ip"

Json = dict[str, Any]


def mapping(value: object) -> Mapping[str, Any]:
    """`value` when it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[Json]:
    """The JSON objects in `value` when it is a list, else none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text(value: object) -> str:
    """`value` when it is text, else empty text."""
    return value if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class Node:
    """What the controllers read of a Node; everything else in `raw` passes through unread."""

    raw: Json

    @property
    def name(self) -> str:
        return text(mapping(self.raw.get("metadata")).get("name"))

    @property
    def uid(self) -> str:
        return text(mapping(self.raw.get("metadata")).get("uid"))

    @property
    def labels(self) -> Mapping[str, str]:
        return mapping(mapping(self.raw.get("metadata")).get("labels"))

    @property
    def has_labels(self) -> bool:
        """Whether the labels map exists; a JSON patch cannot add a key to a missing map."""
        return isinstance(mapping(self.raw.get("metadata")).get("labels"), dict)

    @property
    def annotations(self) -> Mapping[str, str]:
        return mapping(mapping(self.raw.get("metadata")).get("annotations"))

    @property
    def provided_node_ip(self) -> str | None:
        """The kubelet's `--node-ip`; None when it has none, which is not the same as empty."""
        value = self.annotations.get(PROVIDED_NODE_IP)
        return value if isinstance(value, str) else None

    @property
    def provider_id(self) -> str:
        return text(mapping(self.raw.get("spec")).get("providerID"))

    @property
    def pod_cidrs(self) -> list[str]:
        """The networks of its Pods as written, one of each IP family at the most."""
        spec = mapping(self.raw.get("spec"))
        cidrs = spec.get("podCIDRs")
        if not isinstance(cidrs, list) or not cidrs:
            cidrs = [spec.get("podCIDR")]
        return [cidr for cidr in cidrs if isinstance(cidr, str) and cidr]

    @property
    def taints(self) -> list[Json]:
        return objects(mapping(self.raw.get("spec")).get("taints"))

    @property
    def is_uninitialized(self) -> bool:
        return any(taint.get("key") == UNINITIALIZED_TAINT for taint in self.taints)

    @property
    def addresses(self) -> list[Json]:
        return objects(mapping(self.raw.get("status")).get("addresses"))

    @property
    def is_ready(self) -> bool:
        conditions = objects(mapping(self.raw.get("status")).get("conditions"))
        return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)

    def is_foreign(self, scheme: str) -> bool:
        """Whether the Node belongs to another cloud than the one with this provider ID scheme."""
        return bool(self.provider_id) and not self.provider_id.startswith(f"{scheme}://")
