"""What the service worker may ask of the API server; the spec of a Service it cannot change."""

from ccm.controllers import SERVICE
from ccm.kube.events import event_rule
from ccm.model.rbac import PolicyRule

POLICY_RULES = {
    SERVICE: (
        PolicyRule("services", ("get",), "whether one that vanished is really gone"),
        PolicyRule("services/status", ("patch",), "addresses of balancers, our finalizer"),
        event_rule(""),
    ),
}
