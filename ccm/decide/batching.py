"""When a batch of reads leaves: late enough to save reads, and no read waits in vain.

A batch leaves when it is full, or when no read has joined it for its window. How long that is
follows from the batches before:

LONE    They had one object each: `first_window`, or `lone_window` where the last one left less than
        `idle_window` ago; it leaves at the latest an `interval` after it began.
STREAM  The last one had several: `join_window`; at the latest an `interval` after that one left.
        Twice as long each time that others came after one had left, too soon, up to an `interval`.

Once several came, a batch waits no longer than until it is twice as large as the one before: a
burst is worked on while it comes, for a few reads more, as few as its size has doublings. So does
the window: a short pause of those who make the objects costs a read, and the last of them no more
than the pause.

Where none comes for an `interval`, the next one is LONE. Those that are about to join are waited
for in any case, up to `longest_wait`.
"""

import math
from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The batch that left last, and what another one shortly after it would have."""

    left_at: float = -math.inf
    window: float = 0.0  # of a STREAM; 0 where that one was LONE
    enough: float = math.inf  # objects for which the next one leaves at once


@dataclass(frozen=True, slots=True)
class GatheringBatch:
    """A batch that has not left yet; times are monotonic."""

    is_stream: bool
    began_at: float
    window: float
    latest: float
    enough: float = math.inf  # objects; with so many it leaves at once


def begin(last: LastBatch, now: float, timings: BatchTimings) -> GatheringBatch:
    """The batch whose first object came `now`."""
    since = now - last.left_at
    if last.window and since < timings.interval:
        latest = last.left_at + timings.interval
        return GatheringBatch(True, now, last.window, latest, last.enough)
    window = timings.first_window if since > timings.idle_window else timings.lone_window
    return GatheringBatch(False, now, window, now + timings.interval)


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
        if not batch.is_stream:
            return batch.window
        return batch.latest - now if now < batch.latest else timings.interval
    return 0.0


def leave(
    batch: GatheringBatch, now: float, size: int, is_full: bool, timings: BatchTimings
) -> LastBatch:
    """The batch leaves `now`, with `size` objects."""
    if not batch.is_stream and size == 1:
        return LastBatch(now)
    window, enough = timings.join_window, batch.enough
    if batch.is_stream:
        may_be_too_soon = not is_full and size < enough and now < batch.latest
        window = min(2 * batch.window, timings.interval) if may_be_too_soon else batch.window
    enough = 2 * size if math.isinf(enough) else max(2 * size, enough)
    return LastBatch(now, window, enough)
