"""The two ends of the bus: the supervisor's ROUTER socket and a worker's DEALER socket.

Messages are JSON over `ipc://`. A worker's permission to act comes through it as well.
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import zmq
import zmq.asyncio

from ccm.bus.frames import (
    MAX_FRAME,
    AskFenced,
    BadFrame,
    Fenced,
    Message,
    MessageTooLarge,
    Permit,
    UseToken,
    decode,
    encode,
)
from ccm.errors import NotLeading

log = logging.getLogger(__name__)

UNKNOWN_SENDER_LOG_INTERVAL = 60.0  # seconds between two lines about unknown senders
HUB_LINGER, PORT_LINGER = 200, 500  # milliseconds that a closed socket still sends

_NOT_TAKEN = (zmq.EAGAIN, zmq.EHOSTUNREACH)


class Hub:
    """The supervisor's end: it receives from expected workers only.

    A worker is admitted by the name it is started with and its process ID; a message from anybody
    else, of another user or process, is dropped and logged.
    """

    def __init__(self, path: Path) -> None:
        self._admitted: dict[bytes, int] = {}
        self.dropped, self._log_again_at = 0, 0.0
        self._socket = zmq.asyncio.Context.instance().socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # an error instead of a silent loss
        self._socket.setsockopt(zmq.LINGER, HUB_LINGER)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME)
        before = os.umask(0o077)
        try:
            self._socket.bind(f"ipc://{path}")
        finally:
            os.umask(before)

    def admit(self, worker: str, pid: int) -> None:
        """From now on process `pid` may speak as `worker`, the name of one start."""
        self._admitted[worker.encode()] = pid

    def dismiss(self, worker: str) -> None:
        self._admitted.pop(worker.encode(), None)

    def send(self, worker: str, message: Message) -> bool:
        """Hand a message to a worker; False when it is not there to take it."""
        frame = _encoded(message)
        return frame is not None and self.send_raw(worker, frame)

    def send_raw(self, worker: str, frame: bytes) -> bool:
        """The same for a message that is already encoded."""
        return _send_now(self._socket, [worker.encode(), frame])

    async def run(self, handler: Callable[[str, Message], None]) -> None:
        """Receive for ever, and hand on each message as `handler(worker, message)`."""
        while True:
            frames = await self._socket.recv_multipart(copy=False)
            if self._is_from_a_worker(frames):
                self._take(frames[0].bytes.decode(), frames[1].bytes, handler)
            await asyncio.sleep(0)  # while more has come: all else has its turn

    def _is_from_a_worker(self, frames: list[zmq.Frame]) -> bool:
        peer = _peer(frames[-1])
        _, uid, _, pid = (*peer.split(":"), "", "", "")[:4]
        expected = self._admitted.get(frames[0].bytes)
        if len(frames) == 2 and uid == str(os.geteuid()) and pid == str(expected):
            return True
        self._log_unknown_sender(peer)
        return False

    def _log_unknown_sender(self, peer: str) -> None:
        """Once in a while, however much noise they make."""
        self.dropped += 1
        if (now := time.monotonic()) >= self._log_again_at:
            log.warning(
                "dropped a message from an unknown sender",
                extra={"peer": peer, "so_far": self.dropped},
            )
            self._log_again_at = now + UNKNOWN_SENDER_LOG_INTERVAL

    def _take(self, worker: str, frame: bytes, handler: Callable[[str, Message], None]) -> None:
        try:
            message = decode(frame)
        except BadFrame as error:
            log.error("message not understood", extra={"worker": worker, "why": str(error)})
            return
        try:
            handler(worker, message)
        except Exception:  # around one callback: a bad message must not end the bus
            log.exception("message not handled", extra={"worker": worker})

    def close(self) -> None:
        self._socket.close()


class Permission:
    """Until when this process may write; it runs out by itself, whatever the supervisor does."""

    def __init__(self) -> None:
        self._until = 0.0
        self._changed = asyncio.Event()
        self._grace: float | None = None

    def outlive_by(self, grace: float) -> None:
        """From now on the kernel ends this process `grace` seconds after a leadership deadline.

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

    def disarm(self) -> None:
        """Nothing that was begun is under way, and every new write is checked: let us live on."""
        if self._grace is not None and self.seconds_left <= 0:
            signal.setitimer(signal.ITIMER_REAL, 0)

    @property
    def seconds_left(self) -> float:
        return self._until - time.monotonic()

    def check(self) -> None:
        """Raise `NotLeading` unless writing is allowed now."""
        if self.seconds_left <= 0:
            raise NotLeading("this worker may not act now")

    async def wait(self) -> None:
        """Return once writing is allowed."""
        while self.seconds_left <= 0:
            self._changed.clear()
            await self._changed.wait()


class Port:
    """A worker's end: sends to the supervisor, and hands on in order what comes from it.

    `on_message` may be set later; what comes before is dropped. `on_token` gets the path of a file
    with the token that the worker has to use from now on. `is_idle` says whether no request to a
    cloud and no write to Kubernetes is under way.
    """

    def __init__(self, path: Path, worker: str, on_token: Callable[[str], None]) -> None:
        self.permission = Permission()
        self.on_message: Callable[[Message], None] = lambda _: None
        self.is_idle: Callable[[], bool] = lambda: True
        self._on_token = on_token
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.IDENTITY, worker.encode())
        self._socket.setsockopt(zmq.LINGER, PORT_LINGER)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME)
        self._socket.connect(f"ipc://{path}")

    def send(self, message: Message) -> bool:
        """Hand a message to the supervisor; False when it does not take any more."""
        frame = _encoded(message)
        return frame is not None and _send_now(self._socket, [frame])

    async def run(self) -> None:
        """Receive for ever."""
        while True:
            match decode(await self._socket.recv()):
                case Permit(until):
                    self._renew(until)
                case AskFenced(number):
                    if self.permission.seconds_left <= 0 and self.is_idle():
                        self.send(Fenced(number))
                case UseToken(file):
                    self._on_token(file)
                case message:
                    self.on_message(message)
            await asyncio.sleep(0)  # while more has come: heartbeats have their turn

    def _renew(self, until: float) -> None:
        self.permission.renew(until)
        if self.is_idle():
            self.permission.disarm()

    def close(self) -> None:
        """Wait until what was sent has left this process, for `PORT_LINGER` at most."""
        self._context.destroy()


def _encoded(message: Message) -> bytes | None:
    """The frame of a message; one that is too large is logged, with its kind and its size."""
    try:
        return encode(message)
    except MessageTooLarge as error:
        log.error("message not sent", extra={"why": str(error)})
        return None


def _send_now(socket: zmq.asyncio.Socket, parts: list[bytes]) -> bool:
    """Whether the socket took the message; False when the peer is gone or its queue is full."""
    # With NOBLOCK the future is done when it comes back, and the socket's wake-ups stay in order.
    sent = cast("asyncio.Future[Any]", socket.send_multipart(parts, flags=zmq.NOBLOCK))
    error = sent.exception()
    if error is None:
        return True
    if isinstance(error, zmq.ZMQError) and error.errno in _NOT_TAKEN:
        return False
    raise error


def _peer(frame: zmq.Frame) -> str:
    """Who sent it, as `address:uid:gid:pid`; unknown when the peer left at once."""
    try:
        return str(frame.get("Peer-Address"))
    except zmq.ZMQError:
        return "left already"
