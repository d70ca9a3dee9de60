"""The life of a worker process as a table: which state follows which event, and restart delays."""

from dataclasses import dataclass, replace
from enum import StrEnum

from ccm.decide.backoff import Backoff

RESTART = Backoff(first=0.1, most=60.0)
STEADY = 10.0  # seconds of running after which earlier deaths are forgotten


class State(StrEnum):
    """Where a worker is in its life, as `status` shows it."""

    STARTING = "starting"  # the process exists, it has not said hello
    SYNCING = "syncing"  # it is receiving its snapshot
    STANDBY = "standby"  # it has everything and may not act: this replica does not lead
    RUNNING = "running"
    DRAINING = "draining"  # it finishes what it has in hand
    BACKOFF = "backoff"  # it died; a successor starts after a delay
    FAILED = "failed"  # it said that starting again is pointless
    SKIPPED = "skipped"  # the provider has nothing for this duty
    STOPPED = "stopped"


class Event(StrEnum):
    """What happens to a worker."""

    STARTED = "started"
    SAID_HELLO = "said hello"
    SYNCED = "synced"
    MAY_ACT = "may act"
    MAY_NOT_ACT = "may not act"
    TOLD_TO_DRAIN = "told to drain"
    DIED = "died"
    REFUSED = "refused to start"
    NOT_NEEDED = "not needed"
    ENDED = "ended as told"


_ALIVE = (State.STARTING, State.SYNCING, State.STANDBY, State.RUNNING)

TABLE: dict[tuple[State, Event], State] = {
    (State.BACKOFF, Event.STARTED): State.STARTING,
    (State.STOPPED, Event.STARTED): State.STARTING,
    (State.FAILED, Event.STARTED): State.STARTING,
    (State.SKIPPED, Event.STARTED): State.STARTING,
    (State.STARTING, Event.SAID_HELLO): State.SYNCING,
    (State.SYNCING, Event.SYNCED): State.STANDBY,
    (State.STANDBY, Event.MAY_ACT): State.RUNNING,
    (State.RUNNING, Event.MAY_NOT_ACT): State.STANDBY,
    (State.RUNNING, Event.SAID_HELLO): State.SYNCING,
    (State.STANDBY, Event.SAID_HELLO): State.SYNCING,
    **{(state, Event.TOLD_TO_DRAIN): State.DRAINING for state in _ALIVE},
    **{(state, Event.DIED): State.BACKOFF for state in _ALIVE},
    (State.DRAINING, Event.DIED): State.STOPPED,
    (State.DRAINING, Event.ENDED): State.STOPPED,
    (State.STARTING, Event.NOT_NEEDED): State.SKIPPED,
    **{(state, Event.REFUSED): State.FAILED for state in (*_ALIVE, State.DRAINING)},
}
"""Every change of state there is; an event that is not listed for a state changes nothing."""


@dataclass(frozen=True, slots=True)
class Life:
    """A worker's state, since when (monotonic), and how often it died in a row."""

    state: State = State.STOPPED
    since: float = 0.0
    deaths: int = 0


def follow(life: Life, event: Event, now: float, steady: float = STEADY) -> Life:
    """The life after `event`; `steady` seconds of standby or running forget earlier deaths."""
    state = TABLE.get((life.state, event))
    if state is None:
        return life
    if state is State.BACKOFF:
        was_steady = life.state in (State.STANDBY, State.RUNNING) and now - life.since >= steady
        return Life(state, now, 1 if was_steady else life.deaths + 1)
    return replace(life, state=state, since=now)


def restart_delay(life: Life, chance: float) -> float:
    """Seconds from a death to the next start: at once after the first, then doubling to 60 s."""
    return 0.0 if life.deaths <= 1 else RESTART.delay(life.deaths - 1, chance)
