"""What the route worker may ask of the API server."""

from ccm.controllers import ROUTE
from ccm.kube.events import event_rule
from ccm.model.rbac import PolicyRule

POLICY_RULES = {
    ROUTE: (
        PolicyRule("nodes/status", ("patch",), "condition NetworkUnavailable"),
        event_rule(),
    ),
}
