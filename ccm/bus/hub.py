"""The supervisor's end of the bus: one ROUTER socket that knows who may speak on it."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import zmq
import zmq.asyncio

from ccm.bus.frames import MAX_FRAME, BadFrame, Message, decode, encode
from ccm.bus.sending import send_now

log = logging.getLogger(__name__)

QUIET = 60.0  # seconds between two lines about strangers

Handler = Callable[[str, Message], None]


class Hub:
    """Receives from expected workers only and hands their messages to `handler(worker, message)`.

    A worker is admitted by the name it is started with and its process ID; a message from anybody
    else, of another user or process, is dropped and logged.
    """

    def __init__(self, path: Path, handler: Handler) -> None:
        self._handler = handler
        self._admitted: dict[bytes, int] = {}
        self.dropped, self._tell_again_at = 0, 0.0
        self._socket = zmq.asyncio.Context.instance().socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # an error instead of a silent loss
        self._socket.setsockopt(zmq.LINGER, 200)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME)
        before = os.umask(0o077)
        try:
            self._socket.bind(f"ipc://{path}")
        finally:
            os.umask(before)

    def admit(self, worker: str, pid: int) -> None:
        """From now on process `pid` may speak as `worker`."""
        self._admitted[worker.encode()] = pid

    def dismiss(self, worker: str) -> None:
        self._admitted.pop(worker.encode(), None)

    def send(self, worker: str, message: Message) -> bool:
        """Hand a message to a worker; False when it is not there to take it."""
        return self.send_raw(worker, encode(message))

    def send_raw(self, worker: str, frame: bytes) -> bool:
        """The same for a message that is already encoded."""
        return send_now(self._socket, [worker.encode(), frame])

    async def run(self) -> None:
        """Receive for ever."""
        while True:
            frames = await self._socket.recv_multipart(copy=False)
            if self._is_from_a_worker(frames):
                self._take(frames[0].bytes.decode(), frames[1].bytes)

    def _is_from_a_worker(self, frames: list[zmq.Frame]) -> bool:
        peer = _peer(frames[-1])
        _, uid, _, pid = (*peer.split(":"), "", "", "")[:4]
        expected = self._admitted.get(frames[0].bytes)
        if len(frames) == 2 and uid == str(os.geteuid()) and pid == str(expected):
            return True
        self._note_stranger(peer)
        return False

    def _note_stranger(self, peer: str) -> None:
        """Tell of strangers once in a while, however much noise they make."""
        self.dropped += 1
        if (now := time.monotonic()) >= self._tell_again_at:
            log.warning(
                "message from a stranger dropped", extra={"peer": peer, "so_far": self.dropped}
            )
            self._tell_again_at = now + QUIET

    def _take(self, worker: str, frame: bytes) -> None:
        try:
            message = decode(frame)
        except BadFrame as error:
            log.error("message not understood", extra={"worker": worker, "why": str(error)})
            return
        try:
            self._handler(worker, message)
        except Exception:  # around one callback: a bad message must not end the bus
            log.exception("message not handled", extra={"worker": worker})

    def close(self) -> None:
        self._socket.close()


def _peer(frame: zmq.Frame) -> str:
    """Who sent it, as `address:uid:gid:pid`; of a peer that left at once nobody can tell."""
    try:
        return str(frame.get("Peer-Address"))
    except zmq.ZMQError:
        return "left already"
