"""The admin surface over HTTP, for people and tests: no token, no limit, no fault."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict, fields, replace
from typing import Any

from aiohttp import web

from ccm.sandbox.cloud.faults import Fault
from ccm.sandbox.cloud.fields import Fields
from ccm.sandbox.cloud.ledger import WHOLE, Conditions
from ccm.sandbox.cloud.limits import BUDGETS, Rate
from ccm.sandbox.cloud.problems import Problem, invalid
from ccm.sandbox.cloud.records import Address, Machine, Volume
from ccm.sandbox.cloud.replies import answered, body_of, refused
from ccm.sandbox.cloud.service import Service

Handler = Callable[[web.Request], Awaitable[Any]]
CONDITIONS = tuple(field.name for field in fields(Conditions))


class Admin:
    """One small handler for each thing that can be looked at or changed."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def add_routes(self, app: web.Application) -> None:
        table: tuple[tuple[str, str, Handler], ...] = (
            ("GET", "/admin/state", self._dump),
            ("PUT", "/admin/state", self._replace),
            ("GET", "/admin/machines", self._list_machines),
            ("POST", "/admin/machines", self._add_machines),
            ("PATCH", "/admin/machines/{ref}", self._change_machine),
            ("DELETE", "/admin/machines/{ref}", self._vanish),
            ("POST", "/admin/machines/{ref}/{action}", self._act_on_machine),
            ("POST", "/admin/volumes", self._add_volume),
            ("GET", "/admin/counters", self._counters),
            ("DELETE", "/admin/counters", self._reset),
            ("GET", "/admin/requests", self._requests),
            ("GET", "/admin/faults", self._list_faults),
            ("POST", "/admin/faults", self._set_fault),
            ("DELETE", "/admin/faults", self._clear_faults),
            ("DELETE", "/admin/faults/{id}", self._clear_faults),
            ("GET", "/admin/limits", self._limits),
            ("PATCH", "/admin/limits", self._set_limits),
            ("PUT", "/admin/token", self._set_token),
        )
        for method, path, handler in table:
            app.router.add_route(method, path, self._served(handler))

    def _served(self, handler: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            self._service.state.ledger.settle()
            try:
                return answered(await handler(request))
            except Problem as problem:
                return refused(problem)

        return handle

    async def _dump(self, _request: web.Request) -> Any:
        return self._service.state.dump()

    async def _replace(self, request: web.Request) -> Any:
        self._service.state.replace(await body_of(request))

    async def _list_machines(self, _request: web.Request) -> Any:
        return list(self._service.state.machines.records.values())

    async def _add_machines(self, request: web.Request) -> Any:
        body = await body_of(request)
        if not isinstance(body, list):
            raise invalid("the body must be a list of machines")
        wanted = [Machine.from_json(item) for item in body]
        return [self._service.state.machines.add(machine) for machine in wanted]

    async def _change_machine(self, request: web.Request) -> Any:
        body = Fields(await body_of(request), "a change of a machine")
        changes: dict[str, Any] = {
            key: body.text(key) for key in ("type", "zone", "region") if body.has(key)
        }
        if body.has("addresses"):
            changes["addresses"] = tuple(Address.from_json(a) for a in body.objects("addresses"))
        if body.has("labels"):
            changes["labels"] = body.labels("labels")
        body.done()
        return self._service.state.machines.change(request.match_info["ref"], **changes)

    async def _vanish(self, request: web.Request) -> Any:
        self._service.state.machines.vanish(request.match_info["ref"])

    async def _act_on_machine(self, request: web.Request) -> Any:
        machines = self._service.state.machines
        actions = {
            "start": machines.start,
            "stop": machines.stop,
            "terminate": machines.terminate,
        }
        action = request.match_info["action"]
        if action not in actions:
            raise invalid(f"{action!r} cannot be done to a machine: {', '.join(actions)}")
        return actions[action](request.match_info["ref"])

    async def _add_volume(self, request: web.Request) -> Any:
        return self._service.state.add_volume(Volume.from_json(await body_of(request)))

    async def _counters(self, _request: web.Request) -> Any:
        return self._service.counters.to_json()

    async def _reset(self, _request: web.Request) -> Any:
        self._service.counters.reset()

    async def _requests(self, _request: web.Request) -> Any:
        return list(self._service.counters.log)

    async def _list_faults(self, _request: web.Request) -> Any:
        return [fault.to_json() for fault in self._service.faults.active()]

    async def _set_fault(self, request: web.Request) -> Any:
        fault = Fault.from_json(await body_of(request))
        return self._service.faults.set(fault).to_json()

    async def _clear_faults(self, request: web.Request) -> Any:
        self._service.faults.clear(request.match_info.get("id"))

    async def _set_token(self, request: web.Request) -> Any:
        body = Fields(await body_of(request), "the token")
        self._service.tokens = replace(self._service.tokens, full=body.text("token"))
        body.done()

    async def _limits(self, _request: web.Request) -> Any:
        return {**self._service.limits.rates(), **asdict(self._service.conditions)}

    async def _set_limits(self, request: web.Request) -> Any:
        content = await body_of(request)
        body = Fields(content, "the limits")
        changes = {
            key: body.whole(key) if key in WHOLE else body.number(key)
            for key in CONDITIONS
            if body.has(key)
        }
        rates = {key: _rate(body, key) for key in BUDGETS if body.is_named(key)}
        body.done()
        self._service.change_conditions(**changes)
        for budget, rate in rates.items():
            self._service.limits.set(budget, rate)
        return await self._limits(request)


def _rate(body: Fields, key: str) -> Rate | None:
    """The rate in that field; null lifts the limit."""
    if not body.has(key):
        return None
    fields_of_rate = Fields(body.mapping(key), f"the rate {key!r}")
    rate = Rate(fields_of_rate.number("per_second"), fields_of_rate.whole("burst", 1))
    fields_of_rate.done()
    return rate
