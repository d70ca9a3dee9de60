"""What `/livez` and `/readyz` report: whether the parts progress and are in place."""

import time
from collections.abc import Callable, Iterator
from functools import partial

from ccm.decide.children import WorkerState
from ccm.kube.watch import WatchTimings
from ccm.model.status import WatchStatus
from ccm.settings import Settings
from ccm.supervisor.child import Child
from ccm.supervisor.children import Children
from ccm.supervisor.https.endpoints import ACCESS, PING, HealthChecker
from ccm.supervisor.informer import SharedInformer
from ccm.supervisor.leadership import Leadership
from ccm.supervisor.progress import Progress

WATCH_STALL_MARGIN = 30.0  # seconds that a watch may take beyond all that it may wait for
WATCH_SILENCE_MARGIN = 20.0  # seconds without an event beyond what a quiet cluster explains
READY_STATES = (WorkerState.STANDBY, WorkerState.RUNNING, WorkerState.SKIPPED)


class HealthChecks:
    """Live is who makes progress, whatever the API server does; ready is who could act at once."""

    def __init__(
        self,
        settings: Settings,
        leader: Leadership,
        progress: Progress,
        informer: SharedInformer,
        children: Children,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._settings, self._leader, self._progress = settings, leader, progress
        self._informer, self._children, self._is_stopping = informer, children, is_stopping

    def alive(self) -> Iterator[HealthChecker]:
        """What only a new process can fix; also `/healthz`, which upstream's probes use."""
        yield HealthChecker(PING, lambda: None)
        if self._settings.leader_elect:
            yield HealthChecker("leaderElection", self._election)
        yield HealthChecker("progress", self._progress.what_is_stuck)
        yield HealthChecker("watches", self._stalled_watches)

    def ready(self) -> Iterator[HealthChecker]:
        """The same, and access, watches that are up to date, and a snapshot for every worker."""
        yield from self.alive()
        yield HealthChecker(ACCESS, lambda: self._leader.refusal or None)
        yield HealthChecker("freshness", self._silent_watches)
        now = time.monotonic()
        for child in self._children:
            must_act = not child.is_joining and self._leader.until(child.controller) > now
            yield HealthChecker(child.name, partial(_not_ready, child, must_act))
        yield HealthChecker("shutdown", lambda: "it stops" if self._is_stopping() else None)

    def _election(self) -> str | None:
        overdue = [
            elector.lease_name for elector in self._leader.electors() if elector.is_overdue()
        ]
        return f"failed election to renew leadership on lease {overdue[0]}" if overdue else None

    def _stalled_watches(self) -> str | None:
        """A watch that fails and retries is not stalled."""
        waits = WatchTimings(self._settings.watch_idle_limit)
        limit = waits.idle_limit + waits.response_timeout + waits.max_retry_after
        return self._older(lambda watch: watch["seconds_since_event"], limit + WATCH_STALL_MARGIN)

    def _silent_watches(self) -> str | None:
        limit = self._settings.watch_idle_limit + WATCH_SILENCE_MARGIN
        return self._older(lambda watch: watch["silent_seconds"], limit)

    def _older(self, age: Callable[[WatchStatus], float], limit: float) -> str | None:
        kinds = self._informer.status(time.monotonic())["kinds"]
        old = [
            f"{kind} for {seconds:.0f} s {watch['last_error']}".rstrip()
            for kind, watch in kinds.items()
            if (seconds := age(watch)) > limit
        ]
        return f"nothing from the watch of {', '.join(old)}" if old else None


def _not_ready(child: Child, must_act: bool) -> str | None:
    """Why this worker could not act; during a hand-over the successor may be the ready one."""
    has_synced_successor = child.successor is not None and child.successor.is_synced
    if must_act and child.life.state is WorkerState.STANDBY:
        return "worker is standby, and this replica leads"
    if child.life.state in READY_STATES or has_synced_successor:
        return None
    return f"worker is {child.life.state}"
