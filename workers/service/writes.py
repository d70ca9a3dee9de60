"""What is written about a Service: JSON patches, and Events in upstream's words."""

from collections.abc import Sequence
from typing import assert_never
from urllib.parse import quote

from ccm.kube.events import Event, ObjectRef
from ccm.model.cloud import Ingress
from ccm.model.objects import Json, expect_same, replace_seen
from ccm.model.service import FINALIZER, Service
from ccm.model.writes import Patch
from workers.service.hosts import Hosts
from workers.service.plan import AddFinalizer, RemoveFinalizer, ServiceWrite, SetStatus

MAX_NODE_NAMES = 20  # in one message


def patch_for(write: ServiceWrite) -> Patch:
    """The write as a JSON patch; it fails with 422 when the Service is not what it was.

    Finalizers are written through the status, too: then no right to change a spec is needed.
    """
    service = write.service
    listed = service.meta.get("finalizers")
    match write:
        case AddFinalizer():
            wanted = [*service.finalizers, FINALIZER]
            change = replace_seen("/metadata/finalizers", listed, wanted)
        case RemoveFinalizer():
            left = [finalizer for finalizer in service.finalizers if finalizer != FINALIZER]
            change = replace_seen("/metadata/finalizers", listed, left or None)
        case SetStatus(_, ingress):
            status = {"ingress": ingress} if ingress else {}
            change = replace_seen("/status/loadBalancer", service.load_balancer, status)
        case _:
            assert_never(write)
    return Patch(f"{path_of(service)}/status", (expect_same(service), *change))


def path_of(service: Service) -> str:
    """Where the API server has it."""
    return f"/api/v1/namespaces/{quote(service.namespace)}/services/{quote(service.name)}"


def ingress_json(ingress: Sequence[Ingress]) -> list[Json]:
    """`status.loadBalancer.ingress` for these addresses; `ipMode` goes with an IP only."""
    return [
        {
            **({"ip": entry.ip} if entry.ip else {}),
            **({"hostname": entry.hostname} if entry.hostname else {}),
            **({"ipMode": str(entry.ip_mode)} if entry.ip and entry.ip_mode else {}),
        }
        for entry in ingress
    ]


def normal(service: Service, reason: str, message: str) -> Event:
    """An Event of what we do."""
    return Event(ObjectRef.of(service), "Normal", reason, message)


def warning(service: Service, reason: str, message: str) -> Event:
    """An Event of what somebody should know."""
    return Event(ObjectRef.of(service), "Warning", reason, message)


def no_hosts(service: Service) -> Event:
    """The balancer has no hosts."""
    message = "There are no available nodes for LoadBalancer"
    return warning(service, "UnAvailableLoadBalancer", message)


def without_effect(service: Service, warnings: Sequence[str]) -> Event:
    """The balancer is there, without some of what the Service asks for."""
    return warning(service, "LoadBalancerWarning", "; ".join(warnings))


def sync_failed(service: Service, error: str) -> Event:
    """A reconcile failed."""
    return warning(service, "SyncLoadBalancerFailed", f"Error syncing load balancer: {error}")


def ensure_failed(service: Service, error: Exception | str) -> Event:
    """The balancer was not made or not changed, or what it should be is refused."""
    return sync_failed(service, f"failed to ensure load balancer: {error}")


def delete_failed(service: Service, is_orphan: bool, error: Exception) -> Event:
    """The balancer was not deleted; `is_orphan` when the Service has gone."""
    if not is_orphan:
        return sync_failed(service, f"failed to delete load balancer: {error}")
    return warning(service, "DeleteLoadBalancerFailed", f"Error deleting load balancer: {error}")


def write_failed(write: ServiceWrite, error: Exception) -> str:
    """What to say of a write that failed."""
    match write:
        case AddFinalizer():
            return f"failed to add load balancer cleanup finalizer: {error}"
        case RemoveFinalizer():
            return f"failed to remove load balancer cleanup finalizer: {error}"
        case SetStatus():
            return f"failed to update load balancer status: {error}"


def update_failed(service: Service, hosts: Hosts, error: Exception) -> Event:
    """An update of the hosts failed."""
    names, more = hosts.names[:MAX_NODE_NAMES], len(hosts.names) - MAX_NODE_NAMES
    shown = " ".join([*names, f"<{more} more>"] if more > 0 else names)
    message = (
        f"Error updating load balancer with new hosts [{shown}] "
        f"[node names limited, total number of nodes: {len(hosts.names)}], error: {error}"
    )
    return warning(service, "UpdateLoadBalancerFailed", message)
