"""The Node of a machine in a comparison, as its kubelet registers it, initialized or not."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ccm.model.objects import UNINITIALIZED_TAINT, Json
from ccm.sandbox.kubelets import ready_condition, registration

EXCLUDED = {"node.kubernetes.io/exclude-from-external-load-balancers": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """What a Node is like; `name` and `provider_id` may have words of its machine in braces."""

    name: str = "{name}"
    provider_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    is_ready: bool = True
    is_initialized: bool = False
    has_pods: bool = True


def node_of(shape: NodeShape, words: Mapping[str, str], pod_cidr: str) -> Json:
    """The Node of the machine that has these words."""
    body = registration(shape.name.format(**words), pod_cidr * shape.has_pods)
    body["metadata"]["labels"] |= shape.labels
    if shape.provider_id:
        body["spec"]["providerID"] = shape.provider_id.format(**words)
    if shape.is_initialized:
        taints = [taint for taint in body["spec"]["taints"] if taint["key"] != UNINITIALIZED_TAINT]
        body["spec"]["taints"] = taints
    body["status"]["conditions"] = [ready_condition(shape.is_ready)]
    return body
