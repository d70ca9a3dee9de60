"""Cloud-call grants in a worker: asked of the supervisor, for all waiting calls together."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from ccm.bus.frames import (
    AskCalls,
    CallsShut,
    CloudThrottled,
    Granted,
    MadeCalls,
    Message,
    ReturnCalls,
)
from ccm.decide.budget import GOOD_FOR, Priority

Kind = tuple[str, Priority]

BLOCK = 8  # most calls asked for ahead of need
KEEP = 0.25  # seconds after which calls that nobody used go back


@dataclass(slots=True)
class Spare:
    """Calls granted ahead of need, and whether any was used since somebody looked."""

    calls: int
    at: float
    was_used: bool = False


@dataclass(slots=True)
class Asked:
    """What an ask may still bring."""

    kind: Kind
    owed: int
    ahead: int


def is_good(at: float) -> bool:
    """Whether calls granted at that time may still be made."""
    return time.monotonic() <= at + GOOD_FOR


class Grants:
    """The purse of this worker's gate.

    Calls that wait together are asked for together. When calls follow each other closely, some are
    asked for ahead of need, so that the next ones need no answer from the supervisor; what is not
    used soon goes back. A grant that is past its time is not used, however it came to be late.
    """

    def __init__(self, send: Callable[[Message], bool]) -> None:
        self._send = send
        self._numbers = count(1)
        self._waiting: dict[Kind, deque[asyncio.Future[float]]] = {}
        self._asked: dict[int, Asked] = {}
        self._spare: dict[Kind, Spare] = {}
        self._pace: dict[Kind, tuple[int, float]] = {}  # calls in a row, time of the last one
        self._made: Counter[Kind] = Counter()
        self._soon: set[Kind] = set()  # kinds whose asks and reports are about to be sent

    async def take(self, budget: str, priority: Priority) -> float:
        """Return once one call may be made, with the time of its grant.

        Without a supervisor that is never.
        """
        kind = (budget, priority)
        while (at := self._use_spare(kind)) is None:
            at = await self._granted(kind)
            self._send_soon(kind)
            if is_good(at):
                self._made[kind] += 1
                break
            self._send(ReturnCalls(*kind, 1))
        row, last = self._pace.get(kind, (0, 0.0))
        now = time.monotonic()
        self._pace[kind] = (row + 1 if now - last < KEEP else 0, now)
        return at

    def throttled(self, budget: str, seconds: float | None, granted: float) -> None:
        """Tell the supervisor that the cloud refused a call, and stop here at once."""
        self._send(CloudThrottled(budget, seconds, granted))
        self.shut(CallsShut(budget))

    def shut(self, message: CallsShut) -> None:
        """The cloud refused somebody's call of this class: give back what is unused."""
        for kind in [kind for kind in self._spare if kind[0] == message.budget]:
            self._give_back(kind)

    def granted(self, message: Granted) -> None:
        """Let as many waiting calls go as were granted; keep what was asked for ahead."""
        asked = self._asked.get(message.number)
        if asked is None:
            return  # nobody here asked for it: it lapses
        kind, left = asked.kind, message.count
        asked.owed -= min(asked.owed, message.count)
        if not asked.owed:
            del self._asked[message.number]
        left -= self._wake(kind, left, message.at)
        left -= self._keep(kind, min(left, asked.ahead), message.at)
        if left:
            self._send(ReturnCalls(*kind, left))
        self._send_soon(kind)

    async def _granted(self, kind: Kind) -> float:
        """Wait in line for one call; when it was granted."""
        granted: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        line = self._waiting.setdefault(kind, deque())
        line.append(granted)
        self._send_soon(kind)
        try:
            return await granted
        except asyncio.CancelledError:
            if not granted.cancelled():
                self._send(ReturnCalls(*kind, 1))
            elif granted in line:
                line.remove(granted)
            raise

    def _wake(self, kind: Kind, most: int, at: float) -> int:
        """Let the first in line go; how many there were."""
        line, woken = self._waiting.get(kind, deque()), 0
        while line and woken < most:
            waiter = line.popleft()
            if not waiter.done():
                waiter.set_result(at)
                woken += 1
        return woken

    def _use_spare(self, kind: Kind) -> float | None:
        spare = self._spare.get(kind)
        if spare is None or not is_good(spare.at):
            return None
        spare.calls -= 1
        spare.was_used = True
        self._made[kind] += 1
        if not spare.calls:
            self._give_back(kind)
        return spare.at

    def _keep(self, kind: Kind, calls: int, at: float) -> int:
        """Put calls aside for those that come next; how many."""
        if spare := self._spare.get(kind):
            spare.calls += calls  # the earlier time holds for all
        elif calls:
            self._spare[kind] = spare = Spare(calls, at)
            asyncio.get_running_loop().call_later(KEEP, self._review, kind, spare)
        return calls

    def _review(self, kind: Kind, spare: Spare) -> None:
        """Keep a spare while it is in use, and report what was used of it."""
        if self._spare.get(kind) is not spare:
            return
        if not spare.was_used or not is_good(spare.at - KEEP):
            self._give_back(kind)
            return
        spare.was_used = False
        self._report(kind)
        asyncio.get_running_loop().call_later(KEEP, self._review, kind, spare)

    def _give_back(self, kind: Kind) -> None:
        spare = self._spare.pop(kind)
        self._report(kind)
        if spare.calls:
            self._send(ReturnCalls(*kind, spare.calls))

    def _send_soon(self, kind: Kind) -> None:
        """Ask and report in the next round of the loop: others are about to queue up, too."""
        if kind not in self._soon:
            self._soon.add(kind)
            asyncio.get_running_loop().call_soon(self._send_now, kind)

    def _send_now(self, kind: Kind) -> None:
        self._soon.discard(kind)
        self._report(kind)
        waiting = sum(1 for waiter in self._waiting.get(kind, ()) if not waiter.done())
        owed = sum(asked.owed for asked in self._asked.values() if asked.kind == kind)
        if waiting <= owed:
            return
        row, last = self._pace.get(kind, (0, 0.0))
        ahead = min(row, BLOCK) if time.monotonic() - last < KEEP else 0
        asked = Asked(kind, waiting - owed, ahead)
        number = next(self._numbers)
        self._asked[number] = asked
        self._send(AskCalls(number, kind[0], int(kind[1]), asked.owed, ahead))

    def _report(self, kind: Kind) -> None:
        """Tell the supervisor which grants are used up."""
        if made := self._made.pop(kind, 0):
            self._send(MadeCalls(*kind, made))
