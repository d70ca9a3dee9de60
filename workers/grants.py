"""Cloud-call grants in a worker: asked of the supervisor, for all waiting calls together."""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import count

from ccm.bus.frames import AskCalls, CloudThrottled, Granted, Message, ReturnCalls
from ccm.decide.budget import Priority

Kind = tuple[str, Priority]


class Grants:
    """The purse of this worker's gate. Calls that wait together are asked for together."""

    def __init__(self, send: Callable[[Message], bool]) -> None:
        self._send = send
        self._numbers = count(1)
        self._waiting: dict[Kind, deque[asyncio.Future[None]]] = {}
        self._asked: dict[int, tuple[Kind, int]] = {}  # number → kind, calls still to come

    async def take(self, budget: str, priority: Priority) -> None:
        """Return once one call may be made; without a supervisor that is never."""
        kind, loop = (budget, priority), asyncio.get_running_loop()
        line = self._waiting.setdefault(kind, deque())
        if not line:
            loop.call_soon(self._ask, kind)  # after others that are about to queue up, too
        granted = loop.create_future()
        line.append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._send(ReturnCalls(budget, 1))
            raise

    def throttled(self, budget: str, seconds: float | None) -> None:
        self._send(CloudThrottled(budget, seconds))

    def granted(self, message: Granted) -> None:
        """Let as many waiting calls go as were granted; give back what nobody waits for now."""
        kind, owed = self._asked.pop(message.number)
        if owed > message.count:
            self._asked[message.number] = (kind, owed - message.count)
        left = message.count
        line = self._waiting.get(kind, deque())
        while line and left:
            waiter = line.popleft()
            if not waiter.done():
                waiter.set_result(None)
                left -= 1
        if left:
            self._send(ReturnCalls(kind[0], left))
        self._ask(kind)

    def _ask(self, kind: Kind) -> None:
        """Ask for what waits beyond what was asked for already."""
        waiting = sum(1 for waiter in self._waiting.get(kind, ()) if not waiter.done())
        owed = sum(calls for known, calls in self._asked.values() if known == kind)
        if waiting > owed:
            number = next(self._numbers)
            self._asked[number] = (kind, waiting - owed)
            self._send(AskCalls(number, kind[0], int(kind[1]), waiting - owed))
