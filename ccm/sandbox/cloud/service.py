"""The parts of one simulated cloud, shared by its two HTTP surfaces."""

from dataclasses import dataclass, replace
from typing import Any

from ccm.sandbox.cloud.counters import Counters
from ccm.sandbox.cloud.faults import FaultPlan
from ccm.sandbox.cloud.ledger import Clock, Conditions
from ccm.sandbox.cloud.limits import Limits
from ccm.sandbox.cloud.problems import Problem
from ccm.sandbox.cloud.state import CloudState


@dataclass(frozen=True, slots=True)
class Tokens:
    """The bearer tokens that the cloud knows."""

    full: str = "sandbox"
    read_only: str = "sandbox-read-only"

    def check(self, authorization: str, budget: str) -> None:
        """Raise the 401 or 403 of a call with that Authorization header."""
        if authorization == f"Bearer {self.full}":
            return
        if authorization != f"Bearer {self.read_only}":
            raise Problem(401, "Unauthenticated", "the bearer token is missing or wrong")
        if budget != "read":
            raise Problem(403, "AccessDenied", "this token may only read")


class Service:
    """State, limits, faults and counters of one cloud."""

    def __init__(self, conditions: Conditions, tokens: Tokens, clock: Clock) -> None:
        self.tokens = tokens
        self.state = CloudState(conditions, clock)
        self.limits = Limits(clock)
        self.faults = FaultPlan(self.state.snapshot)
        self.counters = Counters()

    @property
    def conditions(self) -> Conditions:
        return self.state.ledger.conditions

    def change_conditions(self, **changes: Any) -> Conditions:
        """Change some of the conditions while the cloud runs; takes effect from the next call."""
        self.state.ledger.conditions = replace(self.conditions, **changes)
        return self.conditions
