"""When a batch of reads leaves: late enough to save reads, and no read waits in vain.

A batch leaves when it is full, or when no read has joined it for its window. How long that is
follows from the batches before:

LONE    They had one object each: `first_window`, or `lone_window` where the last one left less than
        `idle_window` ago; it leaves at the latest an `interval` after it began.
STREAM  The last one had several: `join_window`; at the latest an `interval` after that one left.
STEADY  Others came after one of a STREAM had left, too soon: an `interval` after the last one.

Once several came, a batch waits no longer than until it is twice as large as the one before: a
burst is worked on while it comes, for a few reads more, as few as its size has doublings.

Where none comes for an `interval`, the next one is LONE. Those that are about to join are waited
for in any case, up to `longest_wait`.
"""

import math
from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class BatchTimings:
    """In seconds."""

    first_window: float = 0.0005
    """For those that come in the same moment."""
    lone_window: float = 0.005
    """The same, when another object came less than `idle_window` ago."""
    idle_window: float = 0.05
    join_window: float = 0.03
    interval: float = 0.5
    longest_wait: float = 10.0
    """Those that have their answer go first: on a slow API server the writes of a whole batch take
    seconds."""


class Pace(Enum):
    """How objects come."""

    LONE = auto()
    STREAM = auto()
    STEADY = auto()


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The batch that left last; `pace` is what another one shortly after it would have."""

    pace: Pace = Pace.LONE
    left_at: float = -math.inf
    enough: float = math.inf  # objects for which the next one leaves at once


@dataclass(frozen=True, slots=True)
class GatheringBatch:
    """A batch that has not left yet; times are monotonic."""

    pace: Pace
    began_at: float
    window: float
    latest: float
    enough: float = math.inf  # objects; with so many it leaves at once


def begin(last: LastBatch, now: float, timings: BatchTimings) -> GatheringBatch:
    """The batch whose first object came `now`."""
    since = now - last.left_at
    pace = last.pace if since < timings.interval else Pace.LONE
    latest = last.left_at + timings.interval
    match pace:
        case Pace.LONE:
            is_first = since > timings.idle_window
            window = timings.first_window if is_first else timings.lone_window
            return GatheringBatch(pace, now, window, now + timings.interval)
        case Pace.STREAM:
            return GatheringBatch(pace, now, timings.join_window, latest, last.enough)
        case Pace.STEADY:
            return GatheringBatch(pace, now, timings.interval, latest, last.enough)


def seconds_to_wait(
    batch: GatheringBatch,
    now: float,
    joined_at: float,
    are_more_coming: bool,
    timings: BatchTimings,
    size: int = 1,
) -> float:
    """Until this is to be asked again, unless the batch is full before; 0 when it leaves.

    `joined_at` is when the last object joined, `are_more_coming` whether others are about to.
    """
    if size >= batch.enough and not are_more_coming:
        return 0.0
    left = min(joined_at + batch.window, batch.latest) - now
    if left > 0:
        return left
    if are_more_coming and now - batch.began_at < timings.longest_wait:
        if batch.pace is Pace.LONE:
            return batch.window
        return batch.latest - now if now < batch.latest else timings.interval
    return 0.0


def leave(batch: GatheringBatch, now: float, size: int, is_full: bool) -> LastBatch:
    """The batch leaves `now`, with `size` objects."""
    pace, enough = batch.pace, batch.enough
    if pace is Pace.LONE and size > 1:
        pace = Pace.STREAM
    elif pace is Pace.STREAM and not is_full and size < enough and now < batch.latest:
        pace = Pace.STEADY  # another one within the interval shows that this was too soon
    if pace is not Pace.LONE:
        enough = 2 * size if math.isinf(enough) else max(2 * size, enough)
    return LastBatch(pace, now, enough)
