"""What `/livez` and `/readyz` look at: progress, and whether everything is known and in place."""

import time
from collections.abc import Callable, Iterator
from functools import partial

from ccm.decide.children import WorkerState
from ccm.kube.watch import HEADERS_LIMIT, LONGEST_WAIT
from ccm.settings import Settings
from ccm.supervisor.child import Child
from ccm.supervisor.children import Children
from ccm.supervisor.https.endpoints import PING, HealthChecker
from ccm.supervisor.informer import SharedInformer
from ccm.supervisor.leadership import Leadership
from ccm.supervisor.progress import Progress

MARGIN = 30.0  # seconds that a watch may take beyond all that it may wait for
BEHIND = 20.0  # seconds without a sign of life beyond what a quiet cluster explains
IN_PLACE = (WorkerState.STANDBY, WorkerState.RUNNING, WorkerState.SKIPPED)


class Checks:
    """Alive is who comes round, whatever the API server does; ready is who could act at once."""

    def __init__(
        self,
        settings: Settings,
        leader: Leadership,
        progress: Progress,
        feed: SharedInformer,
        children: Children,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._settings, self._leader, self._progress = settings, leader, progress
        self._feed, self._children, self._is_stopping = feed, children, is_stopping

    def alive(self) -> Iterator[HealthChecker]:
        """What only a new process can mend; also `/healthz`, which probes of upstream's use."""
        yield HealthChecker(PING, lambda: None)
        if self._settings.leader_elect:
            yield HealthChecker("leaderElection", self._election)
        yield HealthChecker("progress", self._progress.what_is_stuck)
        yield HealthChecker("watches", self._standstill)

    def ready(self) -> Iterator[HealthChecker]:
        """The same, and that the watches are up to date and every worker has what it needs."""
        yield from self.alive()
        yield HealthChecker("freshness", self._staleness)
        for child in self._children:
            yield HealthChecker(child.name, partial(_lack, child))
        yield HealthChecker("shutdown", lambda: "it stops" if self._is_stopping() else None)

    def _election(self) -> str | None:
        overdue = [leader.lease_name for leader in self._leader.leaders() if leader.is_overdue()]
        return f"failed election to renew leadership on lease {overdue[0]}" if overdue else None

    def _standstill(self) -> str | None:
        """A watch that fails and tries again is no standstill."""
        patience = self._settings.watch_idle_limit + HEADERS_LIMIT + LONGEST_WAIT + MARGIN
        return self._older("standstill_seconds", patience)

    def _staleness(self) -> str | None:
        return self._older("silent_seconds", self._settings.watch_idle_limit + BEHIND)

    def _older(self, fact: str, patience: float) -> str | None:
        kinds = self._feed.status(time.monotonic())["kinds"]
        old = [
            f"{kind} for {status[fact]:.0f} s {status['trouble']}".rstrip()
            for kind, status in kinds.items()
            if status[fact] > patience
        ]
        return f"nothing from the watch of {', '.join(old)}" if old else None


def _lack(child: Child) -> str | None:
    """What a worker has not got; during a hand-over another process has it all."""
    has_heir = child.successor is not None and child.successor.is_synced
    if child.life.state in IN_PLACE or has_heir:
        return None
    return f"worker is {child.life.state}"
