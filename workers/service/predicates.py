"""Which Services want a balancer from us, and which Nodes may stand behind one."""

from collections.abc import Collection

from ccm.model.node import Node
from ccm.model.objects import mapping
from ccm.model.service import Service

EXCLUDE_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"
LEAVING_TAINT = "ToBeDeletedByClusterAutoscaler"

_FALSE = frozenset({"0", "f", "F", "false", "False", "FALSE"})


def is_of_our_class(service: Service, classes: Collection[str]) -> bool:
    """Whether the Service leaves its balancer to us: no class, or one configured as ours."""
    wanted = service.load_balancer_class
    return wanted is None or wanted in classes


def wants_balancer(service: Service, classes: Collection[str] = ()) -> bool:
    return service.type == "LoadBalancer" and is_of_our_class(service, classes)


def needs_cleanup(service: Service) -> bool:
    """Whether the Service waits for its balancer to be taken away."""
    is_over = service.is_being_deleted or service.type != "LoadBalancer"
    return service.has_finalizer and is_over


def may_be_host(node: Node, scheme: str) -> bool:
    """Whether a Node belongs behind the balancers of the cloud whose provider IDs have `scheme`.

    Readiness does not count: a balancer's health check is faster and does not flap with it.
    """
    if mapping(node.raw.get("metadata")).get("deletionTimestamp"):
        return False
    is_leaving = any(taint.get("key") == LEAVING_TAINT for taint in node.taints)
    return not (is_leaving or is_excluded(node) or node.is_foreign(scheme))


def is_excluded(node: Node) -> bool:
    """Whether a label keeps the Node out; a value that is not a plain "no" does, too."""
    return EXCLUDE_LABEL in node.labels and node.labels[EXCLUDE_LABEL] not in _FALSE
