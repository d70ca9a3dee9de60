"""A planned write to a Service as the JSON patch that performs it, with tests of what was seen."""

from typing import assert_never
from urllib.parse import quote

from ccm.model.objects import Json, mapping
from ccm.model.service import FINALIZER, Service
from workers.performer import Patch
from workers.service.plan import AddFinalizer, RemoveFinalizer, SetStatus, Write


def patch_for(write: Write) -> Patch:
    """The write; it fails with 422 when the Service is not what it was.

    Finalizers are written through the status, too: then no right to change a spec is needed.
    """
    service = write.service
    path = f"{path_of(service)}/status"
    same_object: Json = {"op": "test", "path": "/metadata/uid", "value": service.uid}
    match write:
        case AddFinalizer():
            more = [*service.finalizers, FINALIZER]
            return Patch(path, (same_object, *_finalizers(service, more)))
        case RemoveFinalizer():
            left = [finalizer for finalizer in service.finalizers if finalizer != FINALIZER]
            return Patch(path, (same_object, *_finalizers(service, left)))
        case SetStatus(_, ingress):
            return Patch(path, (same_object, *_status(service, ingress)))
        case _:
            assert_never(write)


def path_of(service: Service) -> str:
    return f"/api/v1/namespaces/{quote(service.namespace)}/services/{quote(service.name)}"


def _finalizers(service: Service, wanted: list[str]) -> tuple[Json, Json]:
    """Replace the list that we saw; a missing list tests equal to null."""
    at, listed = "/metadata/finalizers", mapping(service.raw.get("metadata")).get("finalizers")
    seen: Json = {"op": "test", "path": at, "value": listed}
    change: Json = {"op": "add", "path": at, "value": wanted}
    return seen, change if wanted else {"op": "remove", "path": at}


def _status(service: Service, ingress: list[Json]) -> tuple[Json, Json]:
    at = "/status/loadBalancer"
    value = {"ingress": ingress} if ingress else {}
    seen: Json = {"op": "test", "path": at, "value": service.load_balancer}
    return seen, {"op": "add", "path": at, "value": value}
