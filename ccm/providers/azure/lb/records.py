"""What is known of each Service beside what is read: what it gets, has, and may have open.

A read may be older than the writes of others, and no read shows what moves at this moment.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from ccm.errors import Refused
from ccm.providers.azure.lb.names import Names
from ccm.providers.azure.lb.placement import Balancers, Place
from ccm.providers.azure.lb.plan import Socket, bases_in
from ccm.providers.azure.lb.security_group import Reached

MOST_OPEN = 1000  # addresses of one Service that changes which failed may have opened


@dataclass(slots=True)
class Record:
    """Of one Service, from its first change until it is deleted.

    `place` is where it has, or is about to have, so many `rules`; None after a change that failed.
    """

    place: Place | None = None
    rules: int = 0
    sockets: Mapping[str, Collection[Socket]] = field(default_factory=dict)
    """Its ports by the address of each frontend that it has, public ones by ID."""
    additional: Collection[str] = ()
    """Addresses beside its frontends that may be open: a status may lack them."""
    reached: Reached = field(default_factory=dict)
    """What it has open: others do not close it by an older view."""

    def may_open(self, addresses: Collection[str]) -> None:
        """Note that these may be open from now on; raises `Refused` for more than `MOST_OPEN`."""
        found = {*self.additional, *addresses}
        if len(found) > MOST_OPEN and len(found) > len(self.additional):
            raise Refused(
                f"{len(found)} addresses may be open by changes that failed: ask for less"
            )
        self.additional = found


class Records:
    """Those of all Services, by their base names."""

    def __init__(self) -> None:
        self._found = dict[str, Record]()

    def of(self, names: Names) -> Record:
        return self._found.setdefault(names.base, Record())

    def forget(self, names: Names) -> None:
        self._found.pop(names.base, None)

    def others(self, names: Names) -> Iterator[Record]:
        return (record for base, record in self._found.items() if base != names.base)

    def taken(self, names: Names) -> Mapping[str, Collection[Socket]]:
        """What others serve, by address."""
        found = defaultdict[str, set[Socket]](set)
        for record in self.others(names):
            for address, sockets in record.sockets.items():
                found[address].update(sockets)
        return found

    def claimed(self, names: Names) -> set[str]:
        """Addresses that others have, and this one has not: someone may have deleted both
        frontends.
        """
        return {*self.taken(names)} - {"", *self.of(names).sockets}

    def expected(self, names: Names, balancers: Balancers) -> Mapping[Place, int]:
        """Rules of others that these load balancers do not have yet."""
        seen = {place: bases_in(balancer) for place, balancer in balancers.items()}
        found = Counter[Place]()
        for base, record in self._found.items():
            if record.place and base not in {names.base, *seen.get(record.place, ())}:
                found[record.place] += record.rules
        return found
