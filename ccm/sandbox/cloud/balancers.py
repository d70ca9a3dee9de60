"""The load balancers of the simulated cloud, which take their time to become and to go."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ccm.sandbox.cloud.ledger import Ledger
from ccm.sandbox.cloud.machines import Machines
from ccm.sandbox.cloud.problems import Problem, invalid, missing
from ccm.sandbox.cloud.records import LoadBalancer

FIXED = frozenset({"name", "id", "ip", "hostname", "state", "scheme"})


class Balancers:
    """A table of balancers by name; one that is at work refuses changes until it is done."""

    def __init__(self, ledger: Ledger, machines: Machines) -> None:
        self._ledger, self._machines = ledger, machines
        self.records: dict[str, LoadBalancer] = {}

    def copy(self, ledger: Ledger, machines: Machines) -> "Balancers":
        twin = Balancers(ledger, machines)
        twin.records.update(self.records)
        return twin

    def get(self, name: str) -> LoadBalancer:
        if name not in self.records:
            raise missing(f"load balancer {name}")
        return self.records[name]

    def create(self, wanted: LoadBalancer) -> LoadBalancer:
        self._check(wanted)
        return self.put(wanted)

    def put(self, wanted: LoadBalancer) -> LoadBalancer:
        """Create a balancer whatever its hosts, as a seed may hold one with a host that is gone."""
        if wanted.name in self.records:
            raise Problem(409, "AlreadyExists", f"load balancer {wanted.name} exists")
        most = self._ledger.conditions.max_load_balancers
        if len(self.records) >= most:
            raise Problem(422, "QuotaExceeded", f"the account may have {most} load balancers")
        number = self._ledger.number()
        return self._work(
            replace(
                wanted,
                id=wanted.id or f"lb-{number:08d}",
                ip=wanted.ip or f"100.64.{number >> 8 & 255}.{number & 255}",
                hostname=wanted.hostname or f"lb-{number:08d}.lb.simulated",
            ),
            "provisioning",
        )

    def update(self, name: str, fields: Mapping[str, Any]) -> LoadBalancer:
        """Replace the fields given; the others stay as they are."""
        fixed = sorted(FIXED & fields.keys())
        if fixed:
            raise invalid(f"these cannot change in a balancer's life: {', '.join(fixed)}")
        current = self._idle(name)
        asked = LoadBalancer.from_json({"name": name, **fields})
        changed = replace(current, **{key: getattr(asked, key) for key in fields})
        self._check(changed)
        return self._work(changed, "updating")

    def delete(self, name: str) -> None:
        self._set(replace(self._idle(name), state="deleting"))
        self._ledger.after(self._ledger.conditions.deletion, lambda: self._forget(name))

    def _idle(self, name: str) -> LoadBalancer:
        balancer = self.get(name)
        if balancer.state != "active":
            message = f"load balancer {name} is {balancer.state}"
            raise Problem(409, "Busy", message, {"Retry-After": "1"})
        return balancer

    def _check(self, balancer: LoadBalancer) -> None:
        unknown = [host for host in balancer.hosts if not self._machines.exists(host)]
        if unknown:
            raise Problem(422, "NoSuchMachine", f"no such machines: {', '.join(unknown)}")
        ports = [(listener.protocol, listener.port) for listener in balancer.listeners]
        if len(set(ports)) != len(ports):
            raise invalid("two listeners have the same protocol and port")

    def _work(self, balancer: LoadBalancer, state: str) -> LoadBalancer:
        self._set(replace(balancer, state=state))
        seconds = self._ledger.conditions.provisioning
        self._ledger.after(seconds, lambda: self._set(replace(balancer, state="active")))
        return self.records[balancer.name]

    def _set(self, balancer: LoadBalancer) -> None:
        self.records[balancer.name] = balancer
        self._ledger.changed()

    def _forget(self, name: str) -> None:
        if self.records.pop(name, None):
            self._ledger.changed()
