"""What each controller may ask of the API server; `manifests` and `check` go by it.

Only the node controller may delete Nodes, and no controller may change the spec of a Service.
"""

from ccm.controllers import LIFECYCLE, NODE, ROUTE, SERVICE, VOLUME
from ccm.kube.events import event_rule
from ccm.model.rbac import PolicyRule

POLICY_RULES: dict[str, dict[str, tuple[PolicyRule, ...]]] = {
    "node": {
        NODE: (
            PolicyRule("nodes", ("patch",), "provider ID, labels, taint of uninitialized nodes"),
            PolicyRule("nodes/status", ("patch",), "addresses"),
            event_rule(),
        ),
        LIFECYCLE: (
            PolicyRule("nodes", ("patch",), "taint of nodes that are shut down"),
            PolicyRule("nodes", ("delete",), "nodes whose machine is gone"),
            event_rule(),
        ),
    },
    "service": {
        SERVICE: (
            PolicyRule("services", ("get",), "whether one that vanished is really gone"),
            PolicyRule("services/status", ("patch",), "addresses of balancers, our finalizer"),
            event_rule(""),
        ),
    },
    "route": {
        ROUTE: (
            PolicyRule("nodes/status", ("patch",), "condition NetworkUnavailable"),
            event_rule(),
        ),
    },
    "volume_label": {
        VOLUME: (
            PolicyRule("persistentvolumes", ("patch",), "labels and node affinity"),
            event_rule(),
        ),
    },
}
"""Package under `workers` → name in `--controllers` → what that controller needs."""
