"""What the volume-label worker may ask of the API server."""

from ccm.controllers import VOLUME
from ccm.kube.events import event_rule
from ccm.model.rbac import PolicyRule

POLICY_RULES = {
    VOLUME: (
        PolicyRule("persistentvolumes", ("patch",), "labels and node affinity"),
        event_rule(),
    ),
}
