"""The cloud's API as plain functions from a state and a question to an answer, without HTTP."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ccm.sandbox.cloud.paging import page
from ccm.sandbox.cloud.problems import invalid
from ccm.sandbox.cloud.records import LoadBalancer, Route
from ccm.sandbox.cloud.state import CloudState

Json = dict[str, Any]


class Identified(Protocol):
    """Anything with an id."""

    @property
    def id(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Question:
    """What a caller sent: the query, the name at the end of the path, and the JSON body."""

    query: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    body: object = None

    def batch(self, key: str, most: int) -> list[str] | None:
        """The comma-separated values of `key`, each once; None when the key is not there."""
        if key not in self.query:
            return None
        values = list(dict.fromkeys(self.query[key].split(",")))
        if "" in values:
            raise invalid(f"{key} has an empty value")
        if len(values) > most:
            raise invalid(f"{key} has {len(values)} values, at most {most} are allowed")
        return values


@dataclass(frozen=True, slots=True)
class Answer:
    """A success: a status and its JSON, which may hold records; `asked_by` is a record's field."""

    body: Any = None
    status: int = 200
    asked_by: str = ""


def list_machines(state: CloudState, question: Question) -> Answer:
    """Machines by name, by id, or all of them."""
    most = state.ledger.conditions.page
    names, ids = question.batch("names", most), question.batch("ids", most)
    if names is not None and ids is not None:
        raise invalid("ask by names or by ids, not by both")
    if names is not None:
        found = {name: state.machines.named(name) for name in names}
        records = [machine for machines in found.values() for machine in machines]
        absent = [name for name, machines in found.items() if not machines]
        return _batch(question, most, records, absent, "name")
    if ids is not None:
        return _by_ids(question, most, ids, state.machines.records)
    return _list(question, most, state.machines.records)


def list_balancers(state: CloudState, question: Question) -> Answer:
    return _list(question, state.ledger.conditions.page, state.balancers.records)


def get_balancer(state: CloudState, question: Question) -> Answer:
    return Answer(state.balancers.get(question.name))


def create_balancer(state: CloudState, question: Question) -> Answer:
    wanted = LoadBalancer.from_json(_chosen_by_caller(question.body))
    return Answer(state.balancers.create(wanted), 201)


def update_balancer(state: CloudState, question: Question) -> Answer:
    return Answer(state.balancers.update(question.name, _object(question.body)))


def delete_balancer(state: CloudState, question: Question) -> Answer:
    state.balancers.delete(question.name)
    return Answer(status=204)


def list_routes(state: CloudState, question: Question) -> Answer:
    seen = {route_id: state.routes.seen(route) for route_id, route in state.routes.records.items()}
    return _list(question, state.ledger.conditions.page, seen)


def create_route(state: CloudState, question: Question) -> Answer:
    wanted = Route.from_json(_chosen_by_caller(question.body))
    return Answer(state.routes.create(wanted), 201)


def delete_route(state: CloudState, question: Question) -> Answer:
    state.routes.delete(question.name)
    return Answer(status=204)


def list_volumes(state: CloudState, question: Question) -> Answer:
    """Volumes by id, or all of them."""
    most = state.ledger.conditions.page
    ids = question.batch("ids", most)
    if ids is None:
        return _list(question, most, state.volumes)
    return _by_ids(question, most, ids, state.volumes)


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of the API; `name` is what counters, faults and limits know it by."""

    name: str
    budget: str
    method: str
    path: str
    perform: Callable[[CloudState, Question], Answer]


OPERATIONS = (
    Operation("ListMachines", "read", "GET", "/v1/machines", list_machines),
    Operation("ListLoadBalancers", "read", "GET", "/v1/load-balancers", list_balancers),
    Operation("CreateLoadBalancer", "write", "POST", "/v1/load-balancers", create_balancer),
    Operation("GetLoadBalancer", "read", "GET", "/v1/load-balancers/{name}", get_balancer),
    Operation("UpdateLoadBalancer", "write", "PATCH", "/v1/load-balancers/{name}", update_balancer),
    Operation(
        "DeleteLoadBalancer", "write", "DELETE", "/v1/load-balancers/{name}", delete_balancer
    ),
    Operation("ListRoutes", "read", "GET", "/v1/routes", list_routes),
    Operation("CreateRoute", "write", "POST", "/v1/routes", create_route),
    Operation("DeleteRoute", "write", "DELETE", "/v1/routes/{name}", delete_route),
    Operation("ListVolumes", "read", "GET", "/v1/volumes", list_volumes),
)


def _list(question: Question, most: int, records: Mapping[str, Any]) -> Answer:
    items, token = page(records, question.query, most)
    return Answer({"items": items, "next_page_token": token})


def _by_ids(question: Question, most: int, ids: list[str], records: Mapping[str, Any]) -> Answer:
    found = [records[record_id] for record_id in ids if record_id in records]
    absent = [record_id for record_id in ids if record_id not in records]
    return _batch(question, most, found, absent, "id")


def _batch(
    question: Question, most: int, found: Iterable[Identified], absent: list[str], asked_by: str
) -> Answer:
    items, token = page({record.id: record for record in found}, question.query, most)
    body = {"items": items, "next_page_token": token, "not_found": absent}
    return Answer(body, asked_by=asked_by)


def _object(body: object) -> Json:
    if not isinstance(body, dict):
        raise invalid("the body must be a JSON object")
    return body


def _chosen_by_caller(body: object) -> Json:
    """The body of a creation, without what only the cloud can say."""
    own = sorted({"id", "state"} & _object(body).keys())
    if own:
        raise invalid(f"the cloud sets {', '.join(own)} itself")
    return _object(body)
