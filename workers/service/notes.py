"""What people are told about a Service: upstream's Events, word for word."""

from typing import Literal

from ccm.kube.events import Event, ObjectRef
from ccm.model.service import Service
from workers.service.hosts import Hosts
from workers.service.plan import AddFinalizer, RemoveFinalizer, SetStatus, Write

NAMES = 20  # host names in one message


def object_ref(service: Service) -> ObjectRef:
    return ObjectRef("v1", "Service", service.name, service.uid, service.namespace)


def ensuring(service: Service) -> Event:
    return _note(service, "Normal", "EnsuringLoadBalancer", "Ensuring load balancer")


def ensured(service: Service) -> Event:
    return _note(service, "Normal", "EnsuredLoadBalancer", "Ensured load balancer")


def updated(service: Service) -> Event:
    message = "Updated load balancer with new hosts"
    return _note(service, "Normal", "UpdatedLoadBalancer", message)


def deleting(service: Service) -> Event:
    return _note(service, "Normal", "DeletingLoadBalancer", "Deleting load balancer")


def deleted(service: Service) -> Event:
    return _note(service, "Normal", "DeletedLoadBalancer", "Deleted load balancer")


def no_hosts(service: Service) -> Event:
    message = "There are no available nodes for LoadBalancer"
    return _note(service, "Warning", "UnAvailableLoadBalancer", message)


def sync_failed(service: Service, error: str) -> Event:
    message = f"Error syncing load balancer: {error}"
    return _note(service, "Warning", "SyncLoadBalancerFailed", message)


def orphan_failed(service: Service, error: str) -> Event:
    message = f"Error deleting load balancer: {error}"
    return _note(service, "Warning", "DeleteLoadBalancerFailed", message)


def update_failed(service: Service, hosts: Hosts, error: str) -> Event:
    names, more = hosts.names[:NAMES], len(hosts.names) - NAMES
    shown = " ".join([*names, f"<{more} more>"] if more > 0 else names)
    message = (
        f"Error updating load balancer with new hosts [{shown}] "
        f"[node names limited, total number of nodes: {len(hosts.names)}], error: {error}"
    )
    return _note(service, "Warning", "UpdateLoadBalancerFailed", message)


def failure_of(write: Write) -> str:
    """How a message begins that says that this write failed."""
    match write:
        case AddFinalizer():
            return "failed to add load balancer cleanup finalizer"
        case RemoveFinalizer():
            return "failed to remove load balancer cleanup finalizer"
        case SetStatus():
            return "failed to update load balancer status"


def _note(service: Service, kind: Literal["Normal", "Warning"], reason: str, message: str) -> Event:
    return Event(object_ref(service), kind, reason, message)
