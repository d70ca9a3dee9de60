"""Everything the simulated cloud knows, without HTTP, faults or limits."""

import time
from typing import Any

from ccm.sandbox.cloud.balancers import Balancers
from ccm.sandbox.cloud.fields import Fields
from ccm.sandbox.cloud.ledger import Clock, Conditions, Ledger
from ccm.sandbox.cloud.machines import Machines
from ccm.sandbox.cloud.records import LoadBalancer, Machine, Route, Volume
from ccm.sandbox.cloud.routes import Routes


class CloudState:
    """The tables of one account; `revision` counts every change to any of them."""

    def __init__(self, conditions: Conditions | None = None, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self.ledger = Ledger(conditions or Conditions(), clock)
        self.machines = Machines(self.ledger)
        self.balancers = Balancers(self.ledger, self.machines)
        self.routes = Routes(self.ledger, self.machines)
        self.volumes: dict[str, Volume] = {}

    @property
    def revision(self) -> int:
        return self.ledger.revision

    def add_machines(self, count: int, prefix: str = "node-", zones: int = 1) -> list[Machine]:
        """Build `prefix0` … spread over `zones` zones; a short cut for tests and benchmarks."""
        return [
            self.machines.add(Machine(f"{prefix}{number}", zone=f"zone-{chr(97 + number % zones)}"))
            for number in range(count)
        ]

    def add_volume(self, volume: Volume) -> Volume:
        self.volumes[volume.id] = volume
        self.ledger.changed()
        return volume

    def snapshot(self) -> "CloudState":
        """The state as it is now, for answers that are stale; it never moves on by itself."""
        self.ledger.settle()
        twin = CloudState(self.ledger.conditions, self._clock)
        twin.ledger.revision = self.revision
        twin.machines = self.machines.copy(twin.ledger)
        twin.balancers = self.balancers.copy(twin.ledger, twin.machines)
        twin.routes = self.routes.copy(twin.ledger, twin.machines)
        twin.volumes = dict(self.volumes)
        return twin

    def dump(self) -> dict[str, Any]:
        """The whole state as JSON; `load` takes it back."""
        self.ledger.settle()
        return {
            "revision": self.revision,
            "machines": list(self.machines.records.values()),
            "load_balancers": list(self.balancers.records.values()),
            "routes": [self.routes.seen(route) for route in self.routes.records.values()],
            "volumes": list(self.volumes.values()),
        }

    def replace(self, body: object) -> None:
        """Hold what a dump holds and nothing else; numbers given out before are not used again."""
        CloudState(self.ledger.conditions).load(body)  # what is wrong raises before all is lost
        self.machines = Machines(self.ledger)
        self.balancers = Balancers(self.ledger, self.machines)
        self.routes = Routes(self.ledger, self.machines)
        self.volumes = {}
        self.load(body)
        self.ledger.changed()

    def load(self, body: object) -> None:
        """Add what a seed file or a dump holds."""
        fields = Fields(body, "the state")
        fields.whole("revision", 0)
        for item in fields.objects("machines"):
            self.machines.add(Machine.from_json(item))
        for item in fields.objects("load_balancers"):
            self.balancers.put(LoadBalancer.from_json(item))
        for item in fields.objects("routes"):
            self.routes.put(Route.from_json(item))
        for item in fields.objects("volumes"):
            self.add_volume(Volume.from_json(item))
        fields.done()
