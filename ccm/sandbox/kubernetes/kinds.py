"""The table of resources that the sandbox serves; behaviour lives in `strategies`."""

from collections.abc import Mapping
from dataclasses import dataclass

from ccm.model.patches import MERGE_KEYS

VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
STATUS_VERBS = ("get", "patch", "update")


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """One resource: its names, its scope, and the traits that generic code needs."""

    group: str
    version: str
    plural: str
    name: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    has_status: bool = False
    # Whether a client's status survives a create: kubelets register nodes with theirs.
    keep_status_on_create: bool = False

    @property
    def merge_keys(self) -> Mapping[str, str]:
        return MERGE_KEYS.get(self.name, {})

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified_plural(self) -> str:
        """The plural as messages write it, with the group unless it is the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def key(self, namespace: str, name: str) -> str:
        """Return the object's storage key; lists are ordered by it, as in etcd."""
        return f"{namespace}/{name}" if self.namespaced else name

    def prefix(self, namespace: str) -> str:
        return f"{namespace}/" if self.namespaced and namespace else ""


NODE = ResourceKind(
    "", "v1", "nodes", "Node", False, ("no",),
    has_status=True,
    keep_status_on_create=True,
)  # fmt: skip
SERVICE = ResourceKind("", "v1", "services", "Service", True, ("svc",), has_status=True)
PERSISTENT_VOLUME = ResourceKind(
    "", "v1", "persistentvolumes", "PersistentVolume", False, ("pv",), has_status=True
)
NAMESPACE = ResourceKind("", "v1", "namespaces", "Namespace", False, ("ns",), has_status=True)
EVENT = ResourceKind("", "v1", "events", "Event", True, ("ev",))
LEASE = ResourceKind("coordination.k8s.io", "v1", "leases", "Lease", True)
CONFIG_MAP = ResourceKind("", "v1", "configmaps", "ConfigMap", True, ("cm",))
# `kubectl describe` asks for these two.
POD = ResourceKind("", "v1", "pods", "Pod", True, ("po",), has_status=True)
ENDPOINT_SLICE = ResourceKind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True)

STORED_KINDS = (
    *(CONFIG_MAP, EVENT, NAMESPACE, NODE, PERSISTENT_VOLUME, POD, SERVICE),
    *(LEASE, ENDPOINT_SLICE),
)
"""Every resource whose objects are stored, in the order of discovery."""
