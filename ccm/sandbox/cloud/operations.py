"""The cloud's API as plain functions from a state and a request to a response, without HTTP."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
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


def list_machines(state: CloudState, request: OperationRequest) -> Json:
    """Machines by name, by id, or all of them."""
    names = request.batch("names")
    if names is None:
        return list_by_id(state.machines.records, request)
    if "ids" in request.query:
        raise invalid("ask by names or by ids, not by both")
    found = {name: state.machines.named(name) for name in names}
    records = [machine for machines in found.values() for machine in machines]
    return _batch(records, [name for name in names if not found[name]], request)


def list_by_id(records: Mapping[str, Any], request: OperationRequest) -> Json:
    """The records of these ids, or all of them."""
    ids = request.batch("ids")
    if ids is None:
        return paginate(records, request)
    found = [records[record_id] for record_id in ids if record_id in records]
    return _batch(found, [record_id for record_id in ids if record_id not in records], request)


def list_load_balancers(state: CloudState, request: OperationRequest) -> Json:
    """Load balancers by name, or all of them."""
    records, names = state.load_balancers.records, request.batch("names")
    if names is None:
        return paginate(records, request)
    found = [records[name] for name in names if name in records]
    return _batch(found, [name for name in names if name not in records], request)


def list_routes(state: CloudState, request: OperationRequest) -> Json:
    """All routes, each as it is now."""
    records = state.routes.records
    return paginate({key: state.routes.observed(route) for key, route in records.items()}, request)


@dataclass(frozen=True, slots=True)
class CloudOperation:
    """One call of the API; `name` is what counters, faults and limits know it by."""

    name: str
    method: str
    path: str
    perform: Callable[[CloudState, OperationRequest], Any]
    """What returns the JSON of a success, which may hold records."""

    @property
    def budget(self) -> str:
        return "write" if self.method in ("POST", "PATCH", "DELETE") else "read"

    @property
    def success_status(self) -> int:
        return {"POST": 201, "DELETE": 204}.get(self.method, 200)


LOAD_BALANCERS = "/v1/load-balancers"
LOAD_BALANCER = f"{LOAD_BALANCERS}/{{name}}"
OPERATIONS = (
    CloudOperation("ListMachines", "GET", "/v1/machines", list_machines),
    CloudOperation("ListLoadBalancers", "GET", LOAD_BALANCERS, list_load_balancers),
    CloudOperation(
        "CreateLoadBalancer",
        "POST",
        LOAD_BALANCERS,
        lambda state, call: state.load_balancers.create(_creation(LoadBalancer, call)),
    ),
    CloudOperation(
        "GetLoadBalancer",
        "GET",
        LOAD_BALANCER,
        lambda state, call: state.load_balancers.get(call.name),
    ),
    CloudOperation(
        "UpdateLoadBalancer",
        "PATCH",
        LOAD_BALANCER,
        lambda state, call: state.load_balancers.update(call.name, json_object(call.body)),
    ),
    CloudOperation(
        "DeleteLoadBalancer",
        "DELETE",
        LOAD_BALANCER,
        lambda state, call: state.load_balancers.delete(call.name),
    ),
    CloudOperation("ListRoutes", "GET", "/v1/routes", list_routes),
    CloudOperation(
        "CreateRoute",
        "POST",
        "/v1/routes",
        lambda state, call: state.routes.create(_creation(RouteRecord, call)),
    ),
    CloudOperation(
        "DeleteRoute",
        "DELETE",
        "/v1/routes/{name}",
        lambda state, call: state.routes.delete(call.name),
    ),
    CloudOperation(
        "ListVolumes", "GET", "/v1/volumes", lambda state, call: list_by_id(state.volumes, call)
    ),
)


def _batch(
    found: Iterable[Machine | Volume | LoadBalancer], absent: list[str], request: OperationRequest
) -> Json:
    page = paginate({record.id: record for record in found}, request)
    return {**page, "not_found": absent}


def _creation(record: type[T], request: OperationRequest) -> T:
    """What the body asks to create; what only the cloud can say must not be in it."""
    own = sorted({"id", "state"} & json_object(request.body).keys())
    if own:
        raise invalid(f"the cloud sets {', '.join(own)} itself")
    return decode(record, request.body)


def paginate(records: Mapping[str, Any], request: OperationRequest) -> Json:
    """The page of `records` in the order of their keys; its last key is the token of the next one.

    A record that is added or dropped between two pages makes no other appear twice or not at all.
    """
    keys, query = sorted(records), request.query
    start = bisect_right(keys, query["page_token"]) if "page_token" in query else 0
    chosen = keys[start : start + request.page_size]
    token = chosen[-1] if start + len(chosen) < len(keys) else None
    return {"items": [records[key] for key in chosen], "next_page_token": token}
