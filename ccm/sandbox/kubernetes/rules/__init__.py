"""What each kind does of its own when it is written; a kind without rules is stored as it comes."""

from ccm.sandbox.kubernetes.kinds import (
    EVENT,
    LEASE,
    NAMESPACE,
    NODE,
    PERSISTENT_VOLUME,
    SECRET,
    SERVICE,
)
from ccm.sandbox.kubernetes.kinds import Kind as _Kind
from ccm.sandbox.kubernetes.rules.events import EVENT_RULES
from ccm.sandbox.kubernetes.rules.leases import LEASE_RULES
from ccm.sandbox.kubernetes.rules.namespaces import NAMESPACE_RULES
from ccm.sandbox.kubernetes.rules.nodes import NODE_RULES
from ccm.sandbox.kubernetes.rules.rule import Rules
from ccm.sandbox.kubernetes.rules.secrets import SECRET_RULES
from ccm.sandbox.kubernetes.rules.services import SERVICE_RULES
from ccm.sandbox.kubernetes.rules.volumes import VOLUME_RULES

_PLAIN = Rules()
_RULES = {
    NODE.plural: NODE_RULES,
    SERVICE.plural: SERVICE_RULES,
    PERSISTENT_VOLUME.plural: VOLUME_RULES,
    NAMESPACE.plural: NAMESPACE_RULES,
    LEASE.plural: LEASE_RULES,
    EVENT.plural: EVENT_RULES,
    SECRET.plural: SECRET_RULES,
}


def rules_of(kind: _Kind) -> Rules:
    return _RULES.get(kind.plural, _PLAIN)
