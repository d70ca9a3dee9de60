"""Kubernetes objects, read leniently (an invalid one must stop nobody): any object, and a Node."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

Json = dict[str, Any]

UNINITIALIZED_TAINT = "node.cloudprovider.kubernetes.io/uninitialized"
SHUTDOWN_TAINT = "node.cloudprovider.kubernetes.io/shutdown"
PROVIDED_NODE_IP = "alpha.kubernetes.io/provided-node-ip"

_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
MAX_LABEL_PREFIX = 253  # characters
MAX_NUMBER = 1e15


def mapping(value: object) -> Mapping[str, Any]:
    """`value` when it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[Json]:
    """The JSON objects in `value` when it is a list, else none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text(value: object) -> str:
    """`value` when it is text, else empty text."""
    return value if isinstance(value, str) else ""


def number(value: object) -> float:
    """`value` when it is a number that somebody may mean, else 0."""
    return value if isinstance(value, int | float) and abs(value) < MAX_NUMBER else 0


@dataclass(frozen=True, slots=True)
class KubernetesObject:
    """A view of raw JSON; what no property reads passes through untouched."""

    KIND: ClassVar[str] = ""
    raw: Json

    @property
    def meta(self) -> Mapping[str, Any]:
        return mapping(self.raw.get("metadata"))

    @property
    def spec(self) -> Mapping[str, Any]:
        return mapping(self.raw.get("spec"))

    @property
    def status(self) -> Mapping[str, Any]:
        return mapping(self.raw.get("status"))

    @property
    def name(self) -> str:
        return text(self.meta.get("name"))

    @property
    def namespace(self) -> str:
        return text(self.meta.get("namespace"))

    @property
    def uid(self) -> str:
        return text(self.meta.get("uid"))

    @property
    def age_order(self) -> tuple[str, str]:
        """Sorts the oldest first, as the API server says: the same in every process."""
        return text(self.meta.get("creationTimestamp")), self.uid

    @property
    def cloud_identity(self) -> tuple[str, ...]:
        """With another one, the cloud's answer is about something else."""
        return (self.uid,)

    @property
    def labels(self) -> Mapping[str, str]:
        return mapping(self.meta.get("labels"))

    @property
    def has_labels(self) -> bool:
        """Whether the labels map exists; a JSON patch cannot add a key to a missing map."""
        return isinstance(self.meta.get("labels"), dict)

    @property
    def annotations(self) -> Mapping[str, str]:
        return mapping(self.meta.get("annotations"))

    @property
    def is_being_deleted(self) -> bool:
        return bool(self.meta.get("deletionTimestamp"))


@dataclass(frozen=True, slots=True)
class Node(KubernetesObject):
    """What the controllers read of a Node."""

    KIND = "Node"

    @property
    def provided_node_ip(self) -> str | None:
        """The kubelet's `--node-ip`; None when it has none, which is not the same as empty."""
        value = self.annotations.get(PROVIDED_NODE_IP)
        return value if isinstance(value, str) else None

    @property
    def provider_id(self) -> str:
        return text(self.spec.get("providerID"))

    @property
    def cloud_identity(self) -> tuple[str, ...]:
        return (self.uid, self.provider_id)

    @property
    def pod_cidrs(self) -> list[str]:
        """`spec.podCIDRs` as written, at most one of each IP family."""
        cidrs = self.spec.get("podCIDRs")
        if not isinstance(cidrs, list) or not cidrs:
            cidrs = [self.spec.get("podCIDR")]
        return [cidr for cidr in cidrs if isinstance(cidr, str) and cidr]

    @property
    def taints(self) -> list[Json]:
        return objects(self.spec.get("taints"))

    @property
    def is_uninitialized(self) -> bool:
        return any(taint.get("key") == UNINITIALIZED_TAINT for taint in self.taints)

    @property
    def addresses(self) -> list[Json]:
        return objects(self.status.get("addresses"))

    @property
    def is_ready(self) -> bool:
        conditions = objects(self.status.get("conditions"))
        return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)

    def is_foreign(self, provider_ids: re.Pattern[str]) -> bool:
        """Whether the Node belongs to another cloud than the one with these provider IDs."""
        return bool(self.provider_id) and not provider_ids.fullmatch(self.provider_id)


def is_label_value(value: str) -> bool:
    """Whether the API server takes `value`; it takes an empty one as well."""
    return not value or bool(_LABEL_NAME.fullmatch(value))


def is_label_key(key: str) -> bool:
    """Whether the API server takes `key`: a name, or a DNS domain, a slash and a name."""
    prefix, slash, name = key.rpartition("/")
    is_prefix = bool(_LABEL_PREFIX.fullmatch(prefix)) and len(prefix) <= MAX_LABEL_PREFIX
    return bool(_LABEL_NAME.fullmatch(name)) and (is_prefix or not slash)


def is_label(key: str, value: str) -> bool:
    """Whether the API server takes both."""
    return is_label_key(key) and is_label_value(value)
