"""What the node worker may ask of the API server; it alone may delete Nodes."""

from ccm.controllers import LIFECYCLE, NODE
from ccm.kube.events import event_rule
from ccm.model.rbac import PolicyRule

POLICY_RULES = {
    NODE: (
        PolicyRule("nodes", ("patch",), "provider ID, labels, taint of uninitialised nodes"),
        PolicyRule("nodes/status", ("patch",), "addresses"),
        event_rule(),
    ),
    LIFECYCLE: (
        PolicyRule("nodes", ("patch",), "taint of nodes that are shut down"),
        PolicyRule("nodes", ("delete",), "nodes whose machine is gone"),
        event_rule(),
    ),
}
