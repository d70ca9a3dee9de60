"""The cloud's API as plain functions from a state and a request to a response, without HTTP."""

import base64
import binascii
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ccm.sandbox.cloud.codec import decode, invalid, json_object
from ccm.sandbox.cloud.records import LoadBalancer, Machine, RouteRecord, Volume
from ccm.sandbox.cloud.state import CloudState

Json = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OperationRequest:
    """What a caller sent: the query, the name at the end of the path, and the JSON body."""

    page_size: int
    query: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    body: object = None

    def batch(self, key: str) -> list[str] | None:
        """The comma-separated values of `key`, each once; None when the key is not there."""
        if key not in self.query:
            return None
        values = list(dict.fromkeys(self.query[key].split(",")))
        if "" in values:
            raise invalid(f"{key} has an empty value")
        if len(values) > self.page_size:
            raise invalid(f"{key} has {len(values)} values, at most {self.page_size} are allowed")
        return values


@dataclass(frozen=True, slots=True)
class OperationResponse:
    """A success: a status and its JSON, which may hold records.

    `requested_by` names the field of the records, `name` or `id`, that a batch was asked for by.
    """

    body: Any = None
    status: int = 200
    requested_by: str = ""


def list_machines(state: CloudState, request: OperationRequest) -> OperationResponse:
    """Machines by name, by id, or all of them."""
    names, ids = request.batch("names"), request.batch("ids")
    if names is not None and ids is not None:
        raise invalid("ask by names or by ids, not by both")
    if names is not None:
        found = {name: state.machines.named(name) for name in names}
        records = [machine for machines in found.values() for machine in machines]
        absent = [name for name, machines in found.items() if not machines]
        return _batch(request, records, absent, "name")
    if ids is not None:
        return _by_ids(request, ids, state.machines.records)
    return _list(request, state.machines.records)


def list_load_balancers(state: CloudState, request: OperationRequest) -> OperationResponse:
    """All load balancers."""
    return _list(request, state.load_balancers.records)


def get_load_balancer(state: CloudState, request: OperationRequest) -> OperationResponse:
    """The load balancer of that name."""
    return OperationResponse(state.load_balancers.get(request.name))


def create_load_balancer(state: CloudState, request: OperationRequest) -> OperationResponse:
    """Create a load balancer; it may take its time to become active."""
    wanted = decode(LoadBalancer, _creation_body(request.body))
    return OperationResponse(state.load_balancers.create(wanted), 201)


def update_load_balancer(state: CloudState, request: OperationRequest) -> OperationResponse:
    """Change the fields in the body."""
    return OperationResponse(state.load_balancers.update(request.name, json_object(request.body)))


def delete_load_balancer(state: CloudState, request: OperationRequest) -> OperationResponse:
    """Delete a load balancer; it may take its time to go."""
    state.load_balancers.delete(request.name)
    return OperationResponse(status=204)


def list_routes(state: CloudState, request: OperationRequest) -> OperationResponse:
    """All routes."""
    records = state.routes.records
    return _list(request, {key: state.routes.observed(route) for key, route in records.items()})


def create_route(state: CloudState, request: OperationRequest) -> OperationResponse:
    """Create a route."""
    wanted = decode(RouteRecord, _creation_body(request.body))
    return OperationResponse(state.routes.create(wanted), 201)


def delete_route(state: CloudState, request: OperationRequest) -> OperationResponse:
    """Delete the route of that id."""
    state.routes.delete(request.name)
    return OperationResponse(status=204)


def list_volumes(state: CloudState, request: OperationRequest) -> OperationResponse:
    """Volumes by id, or all of them."""
    ids = request.batch("ids")
    if ids is None:
        return _list(request, state.volumes)
    return _by_ids(request, ids, state.volumes)


@dataclass(frozen=True, slots=True)
class CloudOperation:
    """One call of the API; `name` is what counters, faults and limits know it by."""

    name: str
    budget: str
    method: str
    path: str
    perform: Callable[[CloudState, OperationRequest], OperationResponse]


OPERATIONS = (
    CloudOperation("ListMachines", "read", "GET", "/v1/machines", list_machines),
    CloudOperation("ListLoadBalancers", "read", "GET", "/v1/load-balancers", list_load_balancers),
    CloudOperation(
        "CreateLoadBalancer", "write", "POST", "/v1/load-balancers", create_load_balancer
    ),
    CloudOperation(
        "GetLoadBalancer", "read", "GET", "/v1/load-balancers/{name}", get_load_balancer
    ),
    CloudOperation(
        "UpdateLoadBalancer", "write", "PATCH", "/v1/load-balancers/{name}", update_load_balancer
    ),
    CloudOperation(
        "DeleteLoadBalancer", "write", "DELETE", "/v1/load-balancers/{name}", delete_load_balancer
    ),
    CloudOperation("ListRoutes", "read", "GET", "/v1/routes", list_routes),
    CloudOperation("CreateRoute", "write", "POST", "/v1/routes", create_route),
    CloudOperation("DeleteRoute", "write", "DELETE", "/v1/routes/{name}", delete_route),
    CloudOperation("ListVolumes", "read", "GET", "/v1/volumes", list_volumes),
)


def _list(request: OperationRequest, records: Mapping[str, Any]) -> OperationResponse:
    items, token = paginate(records, request)
    return OperationResponse({"items": items, "next_page_token": token})


def _by_ids(
    request: OperationRequest, ids: list[str], records: Mapping[str, Any]
) -> OperationResponse:
    found = [records[record_id] for record_id in ids if record_id in records]
    absent = [record_id for record_id in ids if record_id not in records]
    return _batch(request, found, absent, "id")


def _batch(
    request: OperationRequest,
    found: Iterable[Machine | Volume],
    absent: list[str],
    requested_by: str,
) -> OperationResponse:
    items, token = paginate({record.id: record for record in found}, request)
    body = {"items": items, "next_page_token": token, "not_found": absent}
    return OperationResponse(body, requested_by=requested_by)


def _creation_body(body: object) -> Json:
    """The body of a creation; what only the cloud can say must not be in it."""
    own = sorted({"id", "state"} & json_object(body).keys())
    if own:
        raise invalid(f"the cloud sets {', '.join(own)} itself")
    return json_object(body)


def paginate(records: Mapping[str, T], request: OperationRequest) -> tuple[Sequence[T], str | None]:
    """The page of `records` in the order of their keys, and the token of the next one if any.

    A record that is added or dropped between two pages makes no other appear twice or not at all.
    """
    keys, query = sorted(records), request.query
    start = bisect_right(keys, _last_key(query["page_token"])) if "page_token" in query else 0
    chosen = keys[start : start + _limit(request)]
    has_more = start + len(chosen) < len(keys)
    return [records[key] for key in chosen], _page_token(chosen[-1]) if has_more else None


def _limit(request: OperationRequest) -> int:
    text = request.query.get("limit", str(request.page_size))
    if not text.isdecimal() or int(text) < 1:
        raise invalid(f"limit {text!r} must be a whole number of 1 or more")
    return min(int(text), request.page_size)


def _page_token(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode()


def _last_key(token: str) -> str:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise invalid(f"page_token {token!r} is not one of ours") from error
