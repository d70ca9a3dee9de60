"""The table of resources that the sandbox serves; behaviour lives in `strategies`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ccm.sandbox.kubernetes.objects import names

VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
STATUS_VERBS = ("get", "patch", "update")

# The merge key of a list of plain values, which a strategic merge patch treats as a set.
BY_VALUE = ""


@dataclass(frozen=True, slots=True)
class ResourceKind:
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
    keep_status_on_create: bool = False
    # What a field selector may name besides metadata.name and metadata.namespace.
    selectable_fields: frozenset[str] = frozenset()
    # Lists that a strategic merge patch merges: dotted path to patchMergeKey.
    merge_keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified_plural(self) -> str:
        """The plural as messages write it, with the group unless it is the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_name(self) -> str:
        """The kind as messages write it, with the group unless it is the core group."""
        return f"{self.name}.{self.group}" if self.group else self.name

    def key(self, namespace: str, name: str) -> str:
        """Return the object's storage key; lists are ordered by it, as in etcd."""
        return f"{namespace}/{name}" if self.namespaced else name

    def prefix(self, namespace: str) -> str:
        return f"{namespace}/" if self.namespaced and namespace else ""


NODE = ResourceKind(
    "", "v1", "nodes", "Node", False, ("no",),
    has_status=True,
    keep_status_on_create=True,
    selectable_fields=names("spec.unschedulable"),
    merge_keys={
        "spec.podCIDRs": BY_VALUE,
        "status.addresses": "type",
        "status.conditions": "type",
    },
)  # fmt: skip
SERVICE = ResourceKind(
    "", "v1", "services", "Service", True, ("svc",), ("all",),
    has_status=True,
    selectable_fields=names("spec.clusterIP spec.type"),
    merge_keys={"spec.ports": "port", "status.conditions": "type"},
)  # fmt: skip
PERSISTENT_VOLUME = ResourceKind(
    "", "v1", "persistentvolumes", "PersistentVolume", False, ("pv",),
    has_status=True,
)  # fmt: skip
NAMESPACE = ResourceKind(
    "", "v1", "namespaces", "Namespace", False, ("ns",),
    has_status=True,
    selectable_fields=names("status.phase"),
    merge_keys={"status.conditions": "type"},
)  # fmt: skip
OBJECT_REFERENCE = names("kind namespace name uid apiVersion resourceVersion fieldPath")
EVENT = ResourceKind(
    "", "v1", "events", "Event", True, ("ev",),
    selectable_fields=names("reason reportingComponent source type")
    | {f"involvedObject.{name}" for name in OBJECT_REFERENCE},
)  # fmt: skip
LEASE = ResourceKind(
    "coordination.k8s.io", "v1", "leases", "Lease", True,
)  # fmt: skip
POD = ResourceKind(
    "", "v1", "pods", "Pod", True, ("po",), ("all",),
    has_status=True,
    selectable_fields=names(
        "spec.nodeName spec.schedulerName spec.serviceAccountName status.phase"
    ),
    merge_keys={
        "spec.containers": "name",
        "spec.initContainers": "name",
        "spec.volumes": "name",
        "status.conditions": "type",
    },
)  # fmt: skip
CONFIG_MAP = ResourceKind("", "v1", "configmaps", "ConfigMap", True, ("cm",))
SECRET = ResourceKind("", "v1", "secrets", "Secret", True, selectable_fields=names("type"))
SERVICE_ACCOUNT = ResourceKind(
    "", "v1", "serviceaccounts", "ServiceAccount", True, ("sa",),
    merge_keys={"secrets": "name", "imagePullSecrets": "name"},
)  # fmt: skip
ENDPOINTS = ResourceKind("", "v1", "endpoints", "Endpoints", True, ("ep",))
ENDPOINT_SLICE = ResourceKind(
    "discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True,
)  # fmt: skip

STORED_KINDS = (
    *(CONFIG_MAP, ENDPOINTS, EVENT, NAMESPACE, NODE, PERSISTENT_VOLUME, POD),
    *(SECRET, SERVICE_ACCOUNT, SERVICE, LEASE, ENDPOINT_SLICE),
)
"""Every resource whose objects are stored, in the order of discovery."""
