"""When to look at what Octavia is at work on: learnt from how long the same took here before.

One list has all that are at work, so those that are due later are read with the others.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from ccm.errors import CloudError, RetryAfter
from ccm.model.objects import Json, text

ACTIVE, ERROR, PENDING_DELETE = "ACTIVE", "ERROR", "PENDING_DELETE"
SHORTEST, LONGEST = 0.5, 15.0  # seconds between two looks
LONGEST_FIRST = 120.0  # seconds until the first; an amphora takes a minute and more to boot
SHARE = 0.15  # of the time that it has taken so far, until the next look
MOST_LEARNT = 2.0  # times as long as before, from one call: what it took may be an exception
EARLIER = 0.9  # of what it took, when the first look found it ready: it may have been sooner
LATE = 600.0  # seconds of work after which a warning is due
USUAL = {"CreateLoadBalancer": 4.0, "DeleteLoadBalancer": 2.0}
USUAL_LISTENERS = 10
USUAL_CHANGE = 1.0  # seconds, of all other calls; until something better is known


@dataclass(slots=True)
class Work:
    """What Octavia does: for which call (empty: not ours), since when, where it is listed."""

    call: str
    since: float
    asked_at: float
    tag: str
    teaches: bool
    was_pending: bool = False


class Waiting:
    """The load balancers at work. What takes long for others, or for its size, teaches nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._work: dict[str, Work] = {}
        self._usual: dict[str, float] = {}
        self._next = float("-inf")  # when someone looks

    def __contains__(self, balancer_id: str) -> bool:
        return balancer_id in self._work

    def begin(self, balancer_id: str, call: str, tag: str = "", listeners: int = 0) -> None:
        """Octavia has taken a call for a load balancer of so many listeners.

        What no one has asked about for long is forgotten: its Service has left it, or has gone.
        """
        now = self._clock()
        self._work = {key: it for key, it in self._work.items() if now - it.asked_at < LATE}
        others = self._work.keys() - {balancer_id}
        for other in others:
            self._work[other].teaches = False
        teaches = not others and listeners <= USUAL_LISTENERS
        self._work[balancer_id] = Work(call, now, now, tag, teaches)

    def end(self, balancer_id: str) -> str:
        """It is done, or gone; the call that it was for, if any."""
        work = self._work.pop(balancer_id, None)
        if work and work.call and work.teaches:
            took = self._clock() - work.since
            seconds = took if work.was_pending else min(took, self._first(work.call)) * EARLIER
            self._usual[work.call] = min(
                seconds, MOST_LEARNT * self._first(work.call), LONGEST_FIRST
            )
        return work.call if work else ""

    def since(self, balancer_id: str) -> float:
        """When it began."""
        return self._work[balancer_id].since

    def tags(self) -> Mapping[str, str]:
        """By ID the tags by which a list has them; an unmarked one has none."""
        return {item: work.tag for item, work in self._work.items() if work.tag}

    def retry_when_done(self, balancer_id: str) -> NoReturn:
        """Raise `RetryAfter` after a call: until it is likely to be done."""
        work = self._work[balancer_id]
        what = f"load balancer {balancer_id} is at work on {work.call}"
        raise RetryAfter(what, self._until_look(work, SHORTEST))

    def check(self, record: Json) -> str:
        """The call of ours that is done now, if any; raises while Octavia is at work.

        `RetryAfter` says when to look again, `CloudError` that it takes too long.
        """
        balancer_id, state = text(record.get("id")), text(record.get("provisioning_status"))
        if state in (ACTIVE, ERROR):
            return self.end(balancer_id)
        if balancer_id not in self._work:
            self.begin(balancer_id, "")
        work, now = self._work[balancer_id], self._clock()
        work.was_pending, work.asked_at = True, now
        age = now - work.since
        message = f"load balancer {balancer_id} is {state}"
        if age > LATE:
            raise CloudError(f"{message} for {age:.0f} s: see what Octavia waits for")
        interval = min(max(SHORTEST, age * SHARE), LONGEST)
        raise RetryAfter(message, self._until_look(work, interval))

    def _until_look(self, work: Work, interval: float) -> float:
        """Seconds until the next look: not before the first one is due, but with others."""
        now = self._clock()
        due = max(now + interval, work.since + self._first(work.call))
        if not (len(self._work) > 1 and now < self._next <= due + interval / 2):
            self._next = due
        return self._next - now

    def _first(self, call: str) -> float:
        return self._usual.get(call, USUAL.get(call, USUAL_CHANGE))
