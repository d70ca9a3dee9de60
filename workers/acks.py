"""Telling the supervisor what was taken in, and not sooner than moved keys are out of hand."""

from collections import deque

from ccm.bus.frames import Ack, Objects
from ccm.bus.port import Port
from workers.queue import WorkQueue


class Acks:
    """Acknowledges frames in order. A frame that moves a key away waits while that is in hand.

    So the supervisor knows, once everything is acknowledged, that another worker may have the key.
    """

    def __init__(self, queue: WorkQueue, port: Port) -> None:
        self._queue, self._port = queue, port
        self._waiting: deque[tuple[int, tuple[str, ...]]] = deque()

    def after(self, frame: Objects) -> None:
        """The frame was taken in."""
        if frame.seq == 1:
            self._waiting.clear()  # a new snapshot: what came before is not awaited any more
        self._waiting.append((frame.seq, tuple(key for _, key in frame.moved)))
        self.settle()

    def settle(self) -> None:
        """Acknowledge what can be; call it when a key is no longer in hand."""
        seq = 0
        while self._waiting and not any(map(self._queue.is_in_flight, self._waiting[0][1])):
            seq, _ = self._waiting.popleft()
        if seq:
            self._port.send(Ack(seq))
