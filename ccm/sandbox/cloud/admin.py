"""The admin surface over HTTP, for people and tests: no token, no limit, no fault."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from aiohttp import web

from ccm.sandbox.cloud.codec import (
    CloudApiError,
    decode,
    decode_fields,
    error_response,
    invalid,
    json_object,
    json_response,
    read_json,
)
from ccm.sandbox.cloud.faults import CloudFault
from ccm.sandbox.cloud.records import Machine, Volume
from ccm.sandbox.cloud.service import CloudService, Tokens
from ccm.sandbox.cloud.simulation import BUDGETS, CallRate, CloudParameters

Handler = Callable[[Mapping[str, str], Any], Any]
"""From the variables of the path and the JSON body to the JSON of the answer."""

ACTIONS = ("start", "stop", "terminate")
CHANGEABLE_FIELDS = ("type", "zone", "region", "addresses", "labels")


class AdminApi:
    """What a person or a test can look at and change."""

    def __init__(self, service: CloudService) -> None:
        self._service = service

    def add_routes(self, app: web.Application) -> None:
        service, state = self._service, self._service.state
        table: tuple[tuple[str, str, Handler], ...] = (
            ("GET", "state", lambda _, body: state.dump()),
            ("PUT", "state", lambda _, body: state.replace(body)),
            ("GET", "machines", lambda _, body: list(state.machines.records.values())),
            ("POST", "machines", self._add_machines),
            ("PATCH", "machines/{ref}", self._change_machine),
            ("DELETE", "machines/{ref}", lambda at, body: state.machines.vanish(at["ref"])),
            ("POST", "machines/{ref}/{action}", self._act_on_machine),
            ("POST", "volumes", lambda _, body: state.add_volume(decode(Volume, body))),
            ("GET", "counters", lambda _, body: service.counters.to_json()),
            ("DELETE", "counters", lambda _, body: service.counters.reset()),
            ("GET", "requests", lambda _, body: list(service.counters.log)),
            ("GET", "faults", lambda _, body: [f.to_json() for f in service.faults.active()]),
            ("POST", "faults", self._set_fault),
            ("DELETE", "faults", lambda _, body: service.faults.clear()),
            ("DELETE", "faults/{id}", lambda at, body: service.faults.clear(at["id"])),
            ("GET", "limits", lambda _, body: self._limits()),
            ("PATCH", "limits", self._set_limits),
            ("PUT", "token", self._set_token),
        )
        for method, path, handler in table:
            app.router.add_route(method, f"/admin/{path}", self._http_handler(handler))

    def _http_handler(
        self, handler: Handler
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            self._service.state.simulation.run_due()
            try:
                body = await read_json(request)
                return json_response(handler(request.match_info, body))
            except CloudApiError as error:
                return error_response(error)

        return handle

    def _add_machines(self, at: Mapping[str, str], body: Any) -> Any:
        if not isinstance(body, list):
            raise invalid("the body must be a list of machines")
        machines = [decode(Machine, item) for item in body]
        return [self._service.state.machines.add(machine) for machine in machines]

    def _change_machine(self, at: Mapping[str, str], body: Any) -> Any:
        changes = decode_fields(Machine, body, *CHANGEABLE_FIELDS)
        return self._service.state.machines.change(at["ref"], **changes)

    def _act_on_machine(self, at: Mapping[str, str], body: Any) -> Any:
        if at["action"] not in ACTIONS:
            options = ", ".join(ACTIONS)
            raise invalid(f"{at['action']!r} cannot be done to a machine: {options}")
        return getattr(self._service.state.machines, at["action"])(at["ref"])

    def _set_fault(self, at: Mapping[str, str], body: Any) -> Any:
        return self._service.faults.set(CloudFault.from_json(body)).to_json()

    def _set_token(self, at: Mapping[str, str], body: Any) -> None:
        tokens = decode_fields(Tokens, {"full": json_object(body).get("token")})
        self._service.tokens = replace(self._service.tokens, **tokens)

    def _limits(self) -> Any:
        return {**self._service.limits.rates(), **asdict(self._service.parameters)}

    def _set_limits(self, at: Mapping[str, str], body: Any) -> Any:
        """Change parameters and rates, all or none; a rate of null lifts the limit."""
        parameters = dict(json_object(body))
        rates = {key: parameters.pop(key) for key in BUDGETS if key in parameters}
        limits = {key: decode(CallRate, rate) if rate else None for key, rate in rates.items()}
        self._service.set_parameters(**decode_fields(CloudParameters, parameters))
        for budget, limit in limits.items():
            self._service.limits.set(budget, limit)
        return self._limits()
