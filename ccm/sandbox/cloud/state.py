"""What the simulated cloud holds, without HTTP: machines, load balancers, routes, volumes."""

import time
from dataclasses import replace
from typing import Any

from ccm.sandbox.cloud.codec import CloudApiError, decode, decode_fields, invalid, not_found
from ccm.sandbox.cloud.records import (
    Address,
    LoadBalancer,
    Machine,
    Power,
    RouteRecord,
    StateDump,
    Volume,
)
from ccm.sandbox.cloud.simulation import Clock, CloudParameters, Simulation

IMMUTABLE_FIELDS = frozenset({"name", "id", "ip", "hostname", "state", "scheme"})


class MachineTable:
    """A table of machines by id, with an index by name; a `ref` is an id or an unambiguous name."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.records: dict[str, Machine] = {}
        self._by_name: dict[str, tuple[str, ...]] = {}

    def exists(self, machine_id: str) -> bool:
        """Whether the machine is there at all; a terminated one is not."""
        return machine_id in self.records and self.records[machine_id].is_live

    def named(self, name: str) -> list[Machine]:
        return [self.records[machine_id] for machine_id in self._by_name.get(name, ())]

    def get(self, ref: str) -> Machine:
        if ref in self.records:
            return self.records[ref]
        found = self.named(ref)
        candidates = [machine for machine in found if machine.is_live] or found
        if not candidates:
            raise not_found(f"machine {ref}")
        if len(candidates) > 1:
            ids = ", ".join(machine.id for machine in candidates)
            message = f"{ref} names several machines, use an id: {ids}"
            raise CloudApiError(409, "AmbiguousName", message)
        return candidates[0]

    def add(self, machine: Machine) -> Machine:
        if machine.id in self.records:
            raise CloudApiError(409, "AlreadyExists", f"machine {machine.id} exists")
        number = self._simulation.next_number()
        new = replace(
            machine,
            id=machine.id or self._unused_id(number),
            addresses=machine.addresses or _default_addresses(number, machine.name),
        )
        self.insert(new)
        return new

    def start(self, ref: str) -> Machine:
        return self._put(replace(self._existing(ref), power=Power.RUNNING))

    def stop(self, ref: str) -> Machine:
        return self._put(replace(self._existing(ref), power=Power.STOPPED))

    def terminate(self, ref: str) -> Machine:
        """End a machine for good; it stays visible as `terminated` for the retention time."""
        machine = self._existing(ref)
        ended = self._put(replace(machine, power=Power.TERMINATED))
        self._simulation.schedule(
            self._simulation.parameters.retention, lambda: self._forget(ended.id)
        )
        return ended

    def vanish(self, ref: str) -> None:
        """Take a machine away as if it had never been there."""
        self._forget(self.get(ref).id)

    def change(self, ref: str, **fields: Any) -> Machine:
        return self._put(replace(self.get(ref), **fields))

    def insert(self, machine: Machine) -> None:
        self.records[machine.id] = machine
        self._by_name[machine.name] = (*self._by_name.get(machine.name, ()), machine.id)

    def _existing(self, ref: str) -> Machine:
        machine = self.get(ref)
        if not machine.is_live:
            raise CloudApiError(409, "Terminated", f"machine {machine.id} is terminated for good")
        return machine

    def _put(self, machine: Machine) -> Machine:
        self.records[machine.id] = machine
        return machine

    def _forget(self, machine_id: str) -> None:
        machine = self.records.pop(machine_id, None)
        if machine is None:
            return
        left = tuple(other for other in self._by_name[machine.name] if other != machine_id)
        self._by_name[machine.name] = left
        if not left:
            del self._by_name[machine.name]

    def _unused_id(self, number: int) -> str:
        while (machine_id := f"m-{number:08d}") in self.records:
            number = self._simulation.next_number()
        return machine_id


def _default_addresses(number: int, name: str) -> tuple[Address, ...]:
    """What a new machine gets by default: an address in 10.0.0.0/8 and its name."""
    high, middle, low = number >> 16 & 255, number >> 8 & 255, number & 255
    return (Address("InternalIP", f"10.{high}.{middle}.{low}"), Address("Hostname", name))


class LoadBalancerTable:
    """A table of load balancers by name; one that is at work refuses changes until it is done."""

    def __init__(self, simulation: Simulation, machines: MachineTable) -> None:
        self._simulation, self._machines = simulation, machines
        self.records: dict[str, LoadBalancer] = {}

    def get(self, name: str) -> LoadBalancer:
        if name not in self.records:
            raise not_found(f"load balancer {name}")
        return self.records[name]

    def create(self, wanted: LoadBalancer) -> LoadBalancer:
        self._check(wanted)
        others = (record for record in self.records.values() if record.name != wanted.name)
        if wanted.ip and any(item.ip == wanted.ip for item in others):
            raise CloudApiError(422, "AddressTaken", f"address {wanted.ip} is in use")
        return self.put(wanted)

    def put(self, wanted: LoadBalancer) -> LoadBalancer:
        """Create one whatever its backends, as a seed may hold one with a host that is gone."""
        if wanted.name in self.records:
            raise CloudApiError(409, "AlreadyExists", f"load balancer {wanted.name} exists")
        quota = self._simulation.parameters.max_load_balancers
        if len(self.records) >= quota:
            message = f"the account may have {quota} load balancers"
            raise CloudApiError(422, "QuotaExceeded", message)
        number = self._simulation.next_number()
        return self._work(
            replace(
                wanted,
                id=wanted.id or f"lb-{number:08d}",
                ip=wanted.ip or f"100.64.{number >> 8 & 255}.{number & 255}",
                hostname=wanted.hostname or f"lb-{number:08d}.lb.simulated",
            ),
            "provisioning",
        )

    def update(self, name: str, fields: dict[str, Any]) -> LoadBalancer:
        fixed = sorted(IMMUTABLE_FIELDS & fields.keys())
        if fixed:
            raise invalid(f"these fields are immutable: {', '.join(fixed)}")
        changed = replace(self._idle(name), **decode_fields(LoadBalancer, fields))
        self._check(changed)
        return self._work(changed, "updating")

    def delete(self, name: str) -> None:
        self._set(replace(self._idle(name), state="deleting"))
        self._simulation.schedule(self._simulation.parameters.deletion, lambda: self._forget(name))

    def _idle(self, name: str) -> LoadBalancer:
        balancer = self.get(name)
        if balancer.state != "active":
            message = f"load balancer {name} is {balancer.state}"
            raise CloudApiError(409, "Busy", message, {"Retry-After": "1"})
        return balancer

    def _check(self, balancer: LoadBalancer) -> None:
        unknown = [host for host in balancer.backends if not self._machines.exists(host)]
        if unknown:
            raise CloudApiError(422, "NoSuchMachine", f"no such machines: {', '.join(unknown)}")
        ports = [(listener.protocol, listener.port) for listener in balancer.listeners]
        if len(set(ports)) != len(ports):
            raise invalid("two listeners have the same protocol and port")

    def _work(self, balancer: LoadBalancer, state: str) -> LoadBalancer:
        self._set(replace(balancer, state=state))
        seconds = self._simulation.parameters.provisioning
        self._simulation.schedule(seconds, lambda: self._set(replace(balancer, state="active")))
        return self.records[balancer.name]

    def _set(self, balancer: LoadBalancer) -> None:
        self.records[balancer.name] = balancer

    def _forget(self, name: str) -> None:
        self.records.pop(name, None)


class RouteTable:
    """A table of routes by id, names and networks unique, up to the account's quota."""

    def __init__(self, simulation: Simulation, machines: MachineTable) -> None:
        self._simulation, self._machines = simulation, machines
        self.records: dict[str, RouteRecord] = {}

    def get(self, route_id: str) -> RouteRecord:
        if route_id not in self.records:
            raise not_found(f"route {route_id}")
        return self.observed(self.records[route_id])

    def observed(self, route: RouteRecord) -> RouteRecord:
        """The route as the cloud shows it: a blackhole once its machine no longer exists."""
        alive = self._machines.exists(route.machine_id)
        return replace(route, state="active" if alive else "blackhole")

    def create(self, wanted: RouteRecord) -> RouteRecord:
        if not self._machines.exists(wanted.machine_id):
            raise CloudApiError(422, "NoSuchMachine", f"no such machine: {wanted.machine_id}")
        return self.put(wanted)

    def put(self, wanted: RouteRecord) -> RouteRecord:
        """Create a route even to a machine that does not exist, as a seed may hold a blackhole."""
        number = self._simulation.next_number()
        route = replace(
            wanted,
            id=wanted.id or f"r-{number:08d}",
            name=wanted.name or f"route-{number:08d}",
        )
        for other in self.records.values():
            if other.id == route.id or other.name == route.name:
                message = f"route {other.name} exists as {other.id}"
                raise CloudApiError(409, "AlreadyExists", message)
            if other.cidr == route.cidr:
                raise CloudApiError(409, "NetworkInUse", f"{route.cidr} is routed by {other.id}")
        quota = self._simulation.parameters.max_routes
        if len(self.records) >= quota:
            message = f"{len(self.records)} of {quota} routes are used"
            raise CloudApiError(422, "QuotaExceeded", message)
        self.records[route.id] = route
        return self.observed(route)

    def delete(self, route_id: str) -> None:
        self.get(route_id)
        del self.records[route_id]


class CloudState:
    """The tables of one account."""

    def __init__(
        self, parameters: CloudParameters | None = None, clock: Clock = time.monotonic
    ) -> None:
        self._clock = clock
        self.simulation = Simulation(parameters or CloudParameters(), clock)
        self._clear()

    def _clear(self) -> None:
        self.machines = MachineTable(self.simulation)
        self.load_balancers = LoadBalancerTable(self.simulation, self.machines)
        self.routes = RouteTable(self.simulation, self.machines)
        self.volumes: dict[str, Volume] = {}

    def add_machines(self, count: int, prefix: str = "node-", zones: int = 1) -> list[Machine]:
        """Build `prefix0` … spread over `zones` zones; a short cut for tests and benchmarks."""
        return [
            self.machines.add(Machine(f"{prefix}{number}", zone=f"zone-{chr(97 + number % zones)}"))
            for number in range(count)
        ]

    def add_volume(self, volume: Volume) -> Volume:
        self.volumes[volume.id] = volume
        return volume

    def snapshot(self) -> "CloudState":
        """The state as it is now, for answers that are stale; it never moves on by itself."""
        self.simulation.run_due()
        twin = CloudState(self.simulation.parameters, self._clock)
        for machine in self.machines.records.values():
            twin.machines.insert(machine)
        twin.load_balancers.records.update(self.load_balancers.records)
        twin.routes.records.update(self.routes.records)
        twin.volumes.update(self.volumes)
        return twin

    def dump(self) -> StateDump:
        self.simulation.run_due()
        return StateDump(
            machines=tuple(self.machines.records.values()),
            load_balancers=tuple(self.load_balancers.records.values()),
            routes=tuple(map(self.routes.observed, self.routes.records.values())),
            volumes=tuple(self.volumes.values()),
        )

    def replace(self, body: object) -> None:
        """Hold what a dump holds and nothing else; numbers given out before are not used again."""
        CloudState(self.simulation.parameters).load(body)  # errors are raised before all is lost
        self._clear()
        self.load(body)

    def load(self, body: object) -> None:
        dump = decode(StateDump, body)
        for machine in dump.machines:
            self.machines.add(machine)
        for load_balancer in dump.load_balancers:
            self.load_balancers.put(load_balancer)
        for route in dump.routes:
            self.routes.put(route)
        for volume in dump.volumes:
            self.add_volume(volume)
