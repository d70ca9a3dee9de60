"""The routes of the simulated cloud: one machine a network, and a hole where the machine was."""

from dataclasses import replace

from ccm.sandbox.cloud.ledger import Ledger
from ccm.sandbox.cloud.machines import Machines
from ccm.sandbox.cloud.problems import Problem, missing
from ccm.sandbox.cloud.records import Route


class Routes:
    """A table of routes by id, names and networks unique, up to the account's quota."""

    def __init__(self, ledger: Ledger, machines: Machines) -> None:
        self._ledger, self._machines = ledger, machines
        self.records: dict[str, Route] = {}

    def copy(self, ledger: Ledger, machines: Machines) -> "Routes":
        twin = Routes(ledger, machines)
        twin.records.update(self.records)
        return twin

    def get(self, route_id: str) -> Route:
        if route_id not in self.records:
            raise missing(f"route {route_id}")
        return self.seen(self.records[route_id])

    def seen(self, route: Route) -> Route:
        """The route as the cloud shows it: a blackhole once its machine no longer exists."""
        alive = self._machines.exists(route.machine_id)
        return replace(route, state="active" if alive else "blackhole")

    def create(self, wanted: Route) -> Route:
        if not self._machines.exists(wanted.machine_id):
            raise Problem(422, "NoSuchMachine", f"no such machine: {wanted.machine_id}")
        return self.put(wanted)

    def put(self, wanted: Route) -> Route:
        """Create a route even to a machine that does not exist, as a seed may hold a blackhole."""
        number = self._ledger.number()
        route = replace(
            wanted,
            id=wanted.id or f"r-{number:08d}",
            name=wanted.name or f"route-{number:08d}",
        )
        for other in self.records.values():
            if other.id == route.id or other.name == route.name:
                raise Problem(409, "AlreadyExists", f"route {other.name} exists as {other.id}")
            if other.cidr == route.cidr:
                raise Problem(409, "NetworkInUse", f"{route.cidr} is routed by {other.id}")
        most = self._ledger.conditions.max_routes
        if len(self.records) >= most:
            used = f"{len(self.records)} of {most} routes are used"
            raise Problem(422, "QuotaExceeded", used)
        self.records[route.id] = route
        self._ledger.changed()
        return self.seen(route)

    def delete(self, route_id: str) -> None:
        self.get(route_id)
        del self.records[route_id]
        self._ledger.changed()
