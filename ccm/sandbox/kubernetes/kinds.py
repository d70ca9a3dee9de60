"""The table of resources that the sandbox serves; behaviour lives in `rules`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
STATUS_VERBS = ("get", "patch", "update")

# The merge key of a list of plain values, which a strategic merge patch treats as a set.
BY_VALUE = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """One resource: its names, its scope, and the traits that generic code needs."""

    group: str
    version: str
    plural: str
    name: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    has_status: bool = False
    # Whether a client's status survives a create: kubelets register nodes with theirs.
    keeps_status_on_create: bool = False
    creates_on_update: bool = False
    # Whether a PUT may leave resourceVersion out.
    unconditional_update: bool = True
    returns_deleted: bool = False
    # What a field selector may name besides metadata.name and metadata.namespace.
    selectable: frozenset[str] = frozenset()
    # Lists that a strategic merge patch merges: dotted path to merge key.
    merged_lists: Mapping[str, str] = field(default_factory=dict)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified_plural(self) -> str:
        """The plural as messages write it, with the group unless it is the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def singular(self) -> str:
        return self.name.lower()

    def key(self, namespace: str, name: str) -> str:
        """Return the object's place in the store; lists are ordered by it, as in etcd."""
        return f"{namespace}/{name}" if self.namespaced else name

    def prefix(self, namespace: str) -> str:
        return f"{namespace}/" if self.namespaced and namespace else ""


NODE = Kind(
    "", "v1", "nodes", "Node", False, ("no",),
    has_status=True,
    keeps_status_on_create=True,
    selectable=frozenset({"spec.unschedulable"}),
    merged_lists={
        "spec.podCIDRs": BY_VALUE,
        "status.addresses": "type",
        "status.conditions": "type",
    },
)  # fmt: skip
SERVICE = Kind(
    "", "v1", "services", "Service", True, ("svc",), ("all",),
    has_status=True,
    creates_on_update=True,
    returns_deleted=True,
    selectable=frozenset({"spec.clusterIP", "spec.type"}),
    merged_lists={"spec.ports": "port", "status.conditions": "type"},
)  # fmt: skip
PERSISTENT_VOLUME = Kind(
    "", "v1", "persistentvolumes", "PersistentVolume", False, ("pv",),
    has_status=True,
    returns_deleted=True,
)  # fmt: skip
NAMESPACE = Kind(
    "", "v1", "namespaces", "Namespace", False, ("ns",),
    has_status=True,
    selectable=frozenset({"status.phase"}),
    merged_lists={"status.conditions": "type"},
)  # fmt: skip
EVENT = Kind(
    "", "v1", "events", "Event", True, ("ev",),
    creates_on_update=True,
    selectable=frozenset(
        {
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        }
    ),
)  # fmt: skip
LEASE = Kind(
    "coordination.k8s.io", "v1", "leases", "Lease", True,
    creates_on_update=True,
    unconditional_update=False,
)  # fmt: skip
POD = Kind(
    "", "v1", "pods", "Pod", True, ("po",), ("all",),
    has_status=True,
    returns_deleted=True,
    selectable=frozenset(
        {"spec.nodeName", "spec.schedulerName", "spec.serviceAccountName", "status.phase"}
    ),
    merged_lists={
        "spec.containers": "name",
        "spec.initContainers": "name",
        "spec.volumes": "name",
        "status.conditions": "type",
    },
)  # fmt: skip
CONFIG_MAP = Kind("", "v1", "configmaps", "ConfigMap", True, ("cm",))
SECRET = Kind("", "v1", "secrets", "Secret", True, selectable=frozenset({"type"}))
SERVICE_ACCOUNT = Kind(
    "", "v1", "serviceaccounts", "ServiceAccount", True, ("sa",),
    returns_deleted=True,
    merged_lists={"secrets": "name", "imagePullSecrets": "name"},
)  # fmt: skip
ENDPOINTS = Kind("", "v1", "endpoints", "Endpoints", True, ("ep",), creates_on_update=True)
ENDPOINT_SLICE = Kind(
    "discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True,
    creates_on_update=True,
)  # fmt: skip


def stored_kinds() -> Iterator[Kind]:
    """Yield every resource whose objects are kept, in the order discovery shows them."""
    yield from (CONFIG_MAP, ENDPOINTS, EVENT, NAMESPACE, NODE, PERSISTENT_VOLUME, POD)
    yield from (SECRET, SERVICE_ACCOUNT, SERVICE, LEASE, ENDPOINT_SLICE)
