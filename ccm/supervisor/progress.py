"""How the supervisor is doing, for systemd: one sentence, whether it is up, and what is stuck."""

import time
from collections import Counter

from ccm.decide.children import WorkerState
from ccm.settings import Settings
from ccm.supervisor.children import Children
from ccm.supervisor.leadership import Leadership

CHILDREN_PATIENCE = 15.0  # seconds; they are looked at every second


class Progress:
    """Reads the parts, changes nothing."""

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
        decision = self._leader.sentence if self._settings.leader_elect else "needs no lease"
        states = Counter(child.life.state for child in self._children)
        workers = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        return f"{decision}; workers: {workers}"

    def what_is_stuck(self) -> str | None:
        """What has not come round for too long; the API server's absence is not our standstill."""
        now = time.monotonic()
        if self._settings.leader_elect:
            quiet = now - self._leader.looked_at
            if quiet > 3 * self._settings.leader_elect_renew_deadline:
                return f"leader election has not come round for {quiet:.0f} s"
        quiet = now - self._children.watched_at
        if quiet > CHILDREN_PATIENCE:
            return f"the workers were not looked at for {quiet:.0f} s"
        return None
