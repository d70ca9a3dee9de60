"""When a leader that cannot run a controller offers the Lease: after how long, and again when."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

MAX_INTERVAL = 3600.0  # seconds of being down until an offer, at the most


@dataclass(frozen=True, slots=True)
class OfferSchedule:
    """A worker that is down for `interval` seconds causes an offer; 0: none does.

    `since` says of each that is down when (monotonic) that began, or the last offer was made.
    """

    first_interval: float
    interval: float
    since: Mapping[str, float] = field(default_factory=dict)


def observe_down(schedule: OfferSchedule, down: Iterable[str], now: float) -> OfferSchedule:
    """The schedule once these workers were seen to be down; with none, it begins again."""
    since = {name: schedule.since.get(name, now) for name in down}
    return OfferSchedule(
        schedule.first_interval, schedule.interval if since else schedule.first_interval, since
    )


def workers_due(schedule: OfferSchedule, now: float) -> tuple[str, ...]:
    """The workers that have been down for so long that the Lease is to be offered now."""
    if not schedule.interval:
        return ()
    return tuple(name for name, at in schedule.since.items() if now - at >= schedule.interval)


def after_offer(schedule: OfferSchedule, now: float) -> OfferSchedule:
    """The schedule after an offer: the next one comes after twice the time."""
    interval = max(schedule.first_interval, min(2 * schedule.interval, MAX_INTERVAL))
    return replace(schedule, interval=interval, since=dict.fromkeys(schedule.since, now))
