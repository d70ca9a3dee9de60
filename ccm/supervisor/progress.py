"""The state of the whole supervisor, for systemd and the health checks: is it up, or stuck."""

import time
from collections import Counter

from ccm.decide.children import WorkerState
from ccm.settings import Settings
from ccm.supervisor.children import Children
from ccm.supervisor.leadership import Leadership

CHILDREN_STALL_LIMIT = 15.0  # seconds without a check of the workers, which is due every second


class Progress:
    """Whether the supervisor is up, in one sentence, and which part of it is stuck."""

    def __init__(self, settings: Settings, leader: Leadership, children: Children) -> None:
        self._settings, self._leader, self._children = settings, leader, children

    def is_settled(self) -> bool:
        """Whether every worker has come up, or was tried at least once, and none is replaced."""
        return all(
            not child.successor
            and (
                child.life.deaths
                or child.life.state not in (WorkerState.STARTING, WorkerState.SYNCING)
            )
            for child in self._children
        )

    def sentence(self) -> str:
        """The `STATUS=` line."""
        decision = self._leader.last_decision if self._settings.leader_elect else "needs no lease"
        states = Counter(child.life.state for child in self._children)
        workers = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        return f"{decision}; workers: {workers}"

    def what_is_stuck(self) -> str | None:
        """The part that made no progress for too long; an absent API server does not count."""
        now = time.monotonic()
        if self._settings.leader_elect:
            age = now - self._leader.checked_at
            if age > 3 * self._settings.leader_elect_renew_deadline:
                return f"leader election made no progress for {age:.0f} s"
        age = now - self._children.checked_at
        if age > CHILDREN_STALL_LIMIT:
            return f"the workers were not checked for {age:.0f} s"
        return None
