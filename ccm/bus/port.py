"""A worker's end of the bus: one DEALER socket, and the permission to act that comes through it."""

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path

import zmq
import zmq.asyncio

from ccm.bus.frames import MAX_FRAME, Message, Permit, decode, encode
from ccm.bus.sending import send_now
from ccm.errors import NoPermit

Handler = Callable[[Message], None]


class Permission:
    """Until when this process may write; it runs out by itself, whatever the supervisor does."""

    def __init__(self) -> None:
        self._until = 0.0
        self._changed = asyncio.Event()
        self._grace: float | None = None

    def outlive_by(self, grace: float) -> None:
        """From now on the kernel ends this process `grace` seconds after a permission ran out.

        Checks do not help a process that hangs, waits in a thread, or is stopped right after a
        check: the signal of a timer that ran out meanwhile comes before its next instruction.
        """
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        self._grace = grace

    def renew(self, until: float) -> None:
        self._until = until
        self._changed.set()
        # A permission that was taken back leaves the timer as it is.
        if self._grace is not None and self.seconds_left > 0:
            signal.setitimer(signal.ITIMER_REAL, self.seconds_left + self._grace)

    @property
    def seconds_left(self) -> float:
        return self._until - time.monotonic()

    def check(self) -> None:
        """Raise `NoPermit` unless writing is allowed now."""
        if self.seconds_left <= 0:
            raise NoPermit("this worker may not act now")

    async def wait(self) -> None:
        """Return once writing is allowed."""
        while self.seconds_left <= 0:
            self._changed.clear()
            await self._changed.wait()


class Port:
    """Sends to the supervisor and hands what comes from it to `handler`, in order."""

    def __init__(self, path: Path, worker: str, handler: Handler) -> None:
        self.permission = Permission()
        self._handler = handler
        self._socket = zmq.asyncio.Context.instance().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.IDENTITY, worker.encode())
        self._socket.setsockopt(zmq.LINGER, 500)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME)
        self._socket.connect(f"ipc://{path}")

    def send(self, message: Message) -> bool:
        """Hand a message to the supervisor; False when it does not take any more."""
        return send_now(self._socket, [encode(message)])

    async def run(self) -> None:
        """Receive for ever."""
        while True:
            message = decode(await self._socket.recv())
            if isinstance(message, Permit):
                self.permission.renew(message.until)
            else:
                self._handler(message)

    def close(self) -> None:
        self._socket.close()
