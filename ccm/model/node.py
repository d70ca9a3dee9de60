"""A read-only, lenient view on the raw JSON of a Node: a wrong object must hold up nobody."""

from dataclasses import dataclass

from ccm.model.objects import Json, KubernetesObject, objects, text

UNINITIALIZED_TAINT = "node.cloudprovider.kubernetes.io/uninitialized"
SHUTDOWN_TAINT = "node.cloudprovider.kubernetes.io/shutdown"
PROVIDED_NODE_IP = "alpha.kubernetes.io/provided-node-ip"


@dataclass(frozen=True, slots=True)
class Node(KubernetesObject):
    """What the controllers read of a Node; everything else in `raw` passes through unread."""

    @property
    def has_labels(self) -> bool:
        """Whether the labels map exists; a JSON patch cannot add a key to a missing map."""
        return isinstance(self.meta.get("labels"), dict)

    @property
    def provided_node_ip(self) -> str | None:
        """The kubelet's `--node-ip`; None when it has none, which is not the same as empty."""
        value = self.annotations.get(PROVIDED_NODE_IP)
        return value if isinstance(value, str) else None

    @property
    def provider_id(self) -> str:
        return text(self.spec.get("providerID"))

    @property
    def pod_cidrs(self) -> list[str]:
        """The networks of its Pods as written, one of each IP family at the most."""
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

    def is_foreign(self, scheme: str) -> bool:
        """Whether the Node belongs to another cloud than the one with this provider ID scheme."""
        return bool(self.provider_id) and not self.provider_id.startswith(f"{scheme}://")
