"""The clock of the cloud's state: what it is allowed, what changed, and what is still to come."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, fields

from ccm.sandbox.cloud.problems import invalid

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Conditions:
    """How this cloud behaves, changeable while it runs; all times are seconds."""

    page: int = 100
    """The most records in one answer, and the most names or ids in one question."""
    latency: float = 0.0
    max_routes: int = 1000
    max_load_balancers: int = 100
    boot: float = 0.0
    """How long a machine says `starting`; likewise `shutdown` and `stopping`."""
    shutdown: float = 0.0
    retention: float = 60.0
    """How long a terminated machine stays visible before it is simply absent."""
    provisioning: float = 0.0
    """How long a balancer works on a creation or a change before it is active."""
    deletion: float = 0.0

    def __post_init__(self) -> None:
        if self.page < 1:
            raise invalid("a page holds 1 record or more")
        negative = [field.name for field in fields(self) if getattr(self, field.name) < 0]
        if negative:
            raise invalid(f"these are not negative: {', '.join(negative)}")


WHOLE = frozenset({"page", "max_routes", "max_load_balancers"})
"""The conditions that are counts; the others are seconds."""


class Ledger:
    """Counts every change and holds the changes that happen later by themselves."""

    def __init__(self, conditions: Conditions, clock: Clock) -> None:
        self.conditions = conditions
        self.revision = 0
        self._clock = clock
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._numbers = itertools.count(1)

    def changed(self) -> None:
        self.revision += 1

    def number(self) -> int:
        """A number never given before."""
        return next(self._numbers)

    def after(self, seconds: float, change: Callable[[], None]) -> None:
        """Do `change` at the first `settle` once `seconds` have passed; at once when zero."""
        if seconds <= 0:
            change()
        else:
            heapq.heappush(self._due, (self._clock() + seconds, next(self._order), change))

    def settle(self) -> None:
        """Bring the state up to now."""
        while self._due and self._due[0][0] <= self._clock():
            heapq.heappop(self._due)[2]()
