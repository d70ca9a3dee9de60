"""The machines of the simulated cloud: names may repeat, ids never do."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ccm.sandbox.cloud.ledger import Ledger
from ccm.sandbox.cloud.problems import Problem, missing
from ccm.sandbox.cloud.records import Address, Machine, Power


class Machines:
    """A table of machines by id, with an index by name; a `ref` is an id or an unambiguous name."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._records: dict[str, Machine] = {}
        self._by_name: dict[str, tuple[str, ...]] = {}

    @property
    def records(self) -> Mapping[str, Machine]:
        return self._records

    def exists(self, machine_id: str) -> bool:
        """Whether the machine is there at all; a terminated one is not."""
        return machine_id in self._records and self._records[machine_id].is_live

    def copy(self, ledger: Ledger) -> "Machines":
        twin = Machines(ledger)
        twin._records.update(self._records)
        twin._by_name.update(self._by_name)
        return twin

    def named(self, name: str) -> list[Machine]:
        """Every visible machine of that name, terminated ones included."""
        return [self._records[machine_id] for machine_id in self._by_name.get(name, ())]

    def get(self, ref: str) -> Machine:
        """The machine with that id, or the one live machine of that name."""
        if ref in self._records:
            return self._records[ref]
        found = self.named(ref)
        candidates = [machine for machine in found if machine.is_live] or found
        if not candidates:
            raise missing(f"machine {ref}")
        if len(candidates) > 1:
            ids = ", ".join(machine.id for machine in candidates)
            raise Problem(409, "AmbiguousName", f"{ref} names several machines, use an id: {ids}")
        return candidates[0]

    def add(self, machine: Machine) -> Machine:
        """Build a machine; it boots as long as the conditions say."""
        if machine.id in self._records:
            raise Problem(409, "AlreadyExists", f"machine {machine.id} exists")
        number = self._ledger.number()
        new = replace(
            machine,
            id=machine.id or self._unused_id(number),
            addresses=machine.addresses or addresses(number, machine.name),
        )
        self._put(new)
        self._by_name[new.name] = (*self._by_name.get(new.name, ()), new.id)
        if new.power is Power.RUNNING and self._ledger.conditions.boot > 0:
            self._boot(new)
        return self._records[new.id]

    def start(self, ref: str) -> Machine:
        machine = self._existing(ref)
        if machine.power in (Power.STOPPED, Power.STOPPING):
            self._boot(machine)
        return self._records[machine.id]

    def stop(self, ref: str) -> Machine:
        machine = self._existing(ref)
        if machine.power in (Power.RUNNING, Power.STARTING):
            self._put(replace(machine, power=Power.STOPPING))
            seconds = self._ledger.conditions.shutdown
            self._later(seconds, machine.id, Power.STOPPING, Power.STOPPED)
        return self._records[machine.id]

    def terminate(self, ref: str) -> Machine:
        """End a machine for good; it stays visible as `terminated` for the retention time."""
        machine = self._existing(ref)
        ended = replace(machine, power=Power.TERMINATED)
        self._put(ended)
        self._ledger.after(self._ledger.conditions.retention, lambda: self._forget(ended.id))
        return ended

    def vanish(self, ref: str) -> None:
        """Take a machine away as if it had never been there."""
        self._forget(self.get(ref).id)

    def change(self, ref: str, **fields: Any) -> Machine:
        """Change the type, zone, region, addresses or labels of a machine."""
        changed = replace(self.get(ref), **fields)
        self._put(changed)
        return changed

    def _existing(self, ref: str) -> Machine:
        machine = self.get(ref)
        if not machine.is_live:
            raise Problem(409, "Terminated", f"machine {machine.id} is terminated for good")
        return machine

    def _boot(self, machine: Machine) -> None:
        self._put(replace(machine, power=Power.STARTING))
        seconds = self._ledger.conditions.boot
        self._later(seconds, machine.id, Power.STARTING, Power.RUNNING)

    def _later(self, seconds: float, machine_id: str, before: Power, after: Power) -> None:
        def arrive() -> None:
            machine = self._records.get(machine_id)
            if machine and machine.power is before:
                self._put(replace(machine, power=after))

        self._ledger.after(seconds, arrive)

    def _put(self, machine: Machine) -> None:
        self._records[machine.id] = machine
        self._ledger.changed()

    def _forget(self, machine_id: str) -> None:
        machine = self._records.pop(machine_id, None)
        if machine is None:
            return
        left = tuple(other for other in self._by_name[machine.name] if other != machine_id)
        self._by_name[machine.name] = left
        if not left:
            del self._by_name[machine.name]
        self._ledger.changed()

    def _unused_id(self, number: int) -> str:
        while (machine_id := f"m-{number:08d}") in self._records:
            number = self._ledger.number()
        return machine_id


def addresses(number: int, name: str) -> tuple[Address, ...]:
    """What a new machine gets when nobody says: an address in 10.0.0.0/8 and its name."""
    high, middle, low = number >> 16 & 255, number >> 8 & 255, number & 255
    return (Address("InternalIP", f"10.{high}.{middle}.{low}"), Address("Hostname", name))
