"""The life of a worker process as a table: which state follows which event, and restart delays."""

from dataclasses import dataclass, replace
from enum import StrEnum

from ccm.decide.backoff import Backoff
from ccm.model.status import WorkerReport

RESTART = Backoff(first=0.1, most=60.0)
RENEWAL_INTERVAL = 60.0  # seconds from one renewal of a worker that grew to the next
MOST_MEMORY, MEMORY_OF_OBJECT = 512 << 20, 32 << 10  # bytes that a worker never needs
MOST_THREADS = 500
MOST_OPEN_FILES = 0.75  # of those that it may have
STEADY_TIME = 10.0  # seconds of running after which earlier deaths are forgotten


class WorkerState(StrEnum):
    """Where a worker is in its life, as `status` shows it."""

    STARTING = "starting"  # the process exists, it has not connected
    SYNCING = "syncing"  # it is receiving its snapshot
    STANDBY = "standby"  # it has its snapshot, and this replica does not lead
    RUNNING = "running"
    DRAINING = "draining"  # it finishes the keys in flight
    BACKOFF = "backoff"  # it died, or refused later on; a successor starts after a delay
    FAILED = "failed"  # it refused its configuration before any worker was up: this is final
    SKIPPED = "skipped"  # the provider has no such part, or a flag turned it off
    STOPPED = "stopped"


class WorkerEvent(StrEnum):
    """What happens to a worker."""

    STARTED = "started"
    CONNECTED = "connected"
    SYNCED = "synced"
    STARTED_LEADING = "started leading"
    STOPPED_LEADING = "stopped leading"
    DRAIN_SENT = "drain sent"
    DIED = "died"
    REFUSED = "refused to start"
    NOT_NEEDED = "not needed"
    NOT_SPAWNED = "not spawned"
    ENDED = "drained"


_ALIVE = (WorkerState.STARTING, WorkerState.SYNCING, WorkerState.STANDBY, WorkerState.RUNNING)

TABLE: dict[tuple[WorkerState, WorkerEvent], WorkerState] = {
    (WorkerState.BACKOFF, WorkerEvent.STARTED): WorkerState.STARTING,
    (WorkerState.STOPPED, WorkerEvent.STARTED): WorkerState.STARTING,
    (WorkerState.FAILED, WorkerEvent.STARTED): WorkerState.STARTING,
    (WorkerState.SKIPPED, WorkerEvent.STARTED): WorkerState.STARTING,
    (WorkerState.STARTING, WorkerEvent.CONNECTED): WorkerState.SYNCING,
    (WorkerState.SYNCING, WorkerEvent.SYNCED): WorkerState.STANDBY,
    (WorkerState.STANDBY, WorkerEvent.STARTED_LEADING): WorkerState.RUNNING,
    (WorkerState.RUNNING, WorkerEvent.STOPPED_LEADING): WorkerState.STANDBY,
    (WorkerState.RUNNING, WorkerEvent.CONNECTED): WorkerState.SYNCING,
    (WorkerState.STANDBY, WorkerEvent.CONNECTED): WorkerState.SYNCING,
    **{
        (state, WorkerEvent.NOT_SPAWNED): WorkerState.BACKOFF
        for state in (
            WorkerState.BACKOFF,
            WorkerState.STOPPED,
            WorkerState.FAILED,
            WorkerState.SKIPPED,
        )
    },
    **{(state, WorkerEvent.DRAIN_SENT): WorkerState.DRAINING for state in _ALIVE},
    **{(state, WorkerEvent.DIED): WorkerState.BACKOFF for state in _ALIVE},
    (WorkerState.DRAINING, WorkerEvent.DIED): WorkerState.STOPPED,
    (WorkerState.DRAINING, WorkerEvent.ENDED): WorkerState.STOPPED,
    (WorkerState.STARTING, WorkerEvent.NOT_NEEDED): WorkerState.SKIPPED,
    **{
        (state, WorkerEvent.REFUSED): WorkerState.FAILED
        for state in (*_ALIVE, WorkerState.DRAINING)
    },
}
"""Every transition there is; an event that is not listed for a state changes nothing."""

DOWN_STATES = (WorkerState.STARTING, WorkerState.BACKOFF, WorkerState.FAILED)


@dataclass(frozen=True, slots=True)
class Life:
    """A worker's state, since when (monotonic), and how often it died in a row."""

    state: WorkerState = WorkerState.STOPPED
    since: float = 0.0
    deaths: int = 0


def next_life(life: Life, event: WorkerEvent, now: float, steady: float = STEADY_TIME) -> Life:
    """The life after `event`; `steady` seconds of standby or running forget earlier deaths."""
    state = TABLE.get((life.state, event))
    if state is None:
        return life
    if state is WorkerState.BACKOFF:
        was_steady = (
            life.state in (WorkerState.STANDBY, WorkerState.RUNNING) and now - life.since >= steady
        )
        return Life(state, now, 1 if was_steady else life.deaths + 1)
    return replace(life, state=state, since=now)


def is_up(life: Life, now: float, steady: float = STEADY_TIME) -> bool:
    """Whether the worker took its configuration, and not just for a moment between two deaths."""
    return life.state not in DOWN_STATES and (not life.deaths or now - life.since >= steady)


def why_renew(report: WorkerReport, memory_limit: int) -> str:
    """What a worker has that it cannot need, as a leak of its provider's; empty when nothing is.

    `memory_limit` is what the operator allows, 0 where that is not said.
    """
    limit = memory_limit or MOST_MEMORY + MEMORY_OF_OBJECT * report.get("objects", 0)
    size, threads = report.get("rss_bytes", 0), report.get("threads", 0)
    opened, may_open = report.get("open_files", 0), report.get("open_files_limit", 0)
    if size > limit:
        return f"{size >> 20} MiB of memory, more than {limit >> 20}"
    if threads > MOST_THREADS:
        return f"{threads} threads, more than {MOST_THREADS}"
    if opened > MOST_OPEN_FILES * may_open:
        return f"{opened} open files of {may_open}"
    return ""


def restart_delay(life: Life, chance: float) -> float:
    """Seconds from a death to the next start: at once after the first, then doubling to 60 s."""
    return 0.0 if life.deaths <= 1 else RESTART.delay(life.deaths - 1, chance)
