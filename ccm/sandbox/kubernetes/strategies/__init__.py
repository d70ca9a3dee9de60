"""What each kind does of its own when it is written."""

from ccm.sandbox.kubernetes import kinds
from ccm.sandbox.kubernetes.strategies.nodes import NodeStrategy
from ccm.sandbox.kubernetes.strategies.services import ServiceStrategy
from ccm.sandbox.kubernetes.strategies.simple import (
    EventStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    PersistentVolumeStrategy,
    SecretStrategy,
)
from ccm.sandbox.kubernetes.strategies.strategy import RESTStrategy

_DEFAULT = RESTStrategy()
_STRATEGIES: dict[str, RESTStrategy] = {
    kinds.NODE.plural: NodeStrategy(),
    kinds.SERVICE.plural: ServiceStrategy(),
    kinds.PERSISTENT_VOLUME.plural: PersistentVolumeStrategy(),
    kinds.NAMESPACE.plural: NamespaceStrategy(),
    kinds.LEASE.plural: LeaseStrategy(),
    kinds.EVENT.plural: EventStrategy(),
    kinds.SECRET.plural: SecretStrategy(),
}


def strategy_for(kind: kinds.ResourceKind) -> RESTStrategy:
    """Return the strategy of a kind; the default one has no rules."""
    return _STRATEGIES.get(kind.plural, _DEFAULT)
