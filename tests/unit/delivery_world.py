"""Stores of two kinds and a worker, for tests of the delivery queue between them."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import orjson
import pytest

from ccm.bus.frames import Ack, Objects, Resync, decode
from ccm.model.objects import Projection
from ccm.supervisor import delivery
from ccm.supervisor.delivery import DeliveryQueue, Owns, ProjectedStore
from workers.store import Gap, Store

PROJECTIONS = (Projection("Node", ()), Projection("Service", ()))


class Worker:
    """A receiver: the frames on their way to it, and the store it applies them into."""

    def __init__(self) -> None:
        self.store = Store(PROJECTIONS)
        self.in_transit: deque[bytes] = deque()
        self.is_reachable = True
        self.completed = 0
        self.moved: list[str] = []

    def send(self, frame: bytes) -> bool:
        if self.is_reachable:
            self.in_transit.append(frame)
        return self.is_reachable

    def take_one(self) -> Ack | Resync | None:
        """The worker's answer to its next frame."""
        if not self.in_transit:
            return None
        message = decode(self.in_transit.popleft())
        assert isinstance(message, Objects)
        try:
            self.completed += self.store.apply(message).completed
        except Gap as gap:
            return Resync(str(gap))
        self.moved += [key for _, key in message.moved]
        return Ack(message.epoch, message.seq)


class World:
    """Stores of two kinds, and the delivery queue of one worker."""

    def __init__(self) -> None:
        self.nodes, self.services = ProjectedStore("Node"), ProjectedStore("Service")
        self.version = 0
        self.elsewhere = frozenset({"other"})
        self.worker = Worker()
        self.restart()

    def restart(self) -> None:
        """Another process of the worker."""
        self.worker = Worker()
        owns = _all_but(self.elsewhere)
        self.queue = DeliveryQueue((self.nodes, self.services), owns, self.worker.send)
        self.queue.send_snapshot()

    def move(self, *elsewhere: str) -> None:
        """From now on exactly these keys belong to other workers."""
        self.elsewhere = frozenset(elsewhere)
        self.queue.reassign(_all_but(self.elsewhere))

    def listed(self) -> "World":
        self.nodes.has_synced = self.services.has_synced = True
        self.queue.send_snapshot()
        return self

    def put(self, key: str, text: object, store: ProjectedStore | None = None) -> None:
        store = store or self.nodes
        self.version += 1
        store.values[key] = (self.version, orjson.dumps({"is": text}))
        self.queue.add(store.kind, key)
        self.queue.flush()

    def delete(self, key: str) -> None:
        if self.nodes.values.pop(key, None):
            self.queue.add("Node", key)
            self.queue.flush()

    def deliver(self) -> None:
        """The worker takes one frame and answers."""
        if answer := self.worker.take_one():
            self.hear(answer)

    def hear(self, answer: Ack | Resync) -> None:
        """What the worker answered arrives."""
        match answer:
            case Ack(epoch, seq):
                self.queue.acknowledge(epoch, seq)
            case Resync():
                self.queue.send_snapshot()

    def settle(self) -> None:
        for _ in range(10_000):
            if not self.worker.in_transit:
                return
            self.deliver()
        pytest.fail("the deliveries do not end")

    def known(self) -> dict[str, object]:
        """The Nodes the worker knows."""
        names = [key for kind, key in self.worker.store.names() if kind == "Node"]
        return {key: (self.worker.store.get("Node", key) or {})["is"] for key in names}

    def owned(self) -> dict[str, object]:
        """The Nodes that it should know."""
        return {
            key: orjson.loads(value)["is"]
            for key, (_, value) in self.nodes.values.items()
            if key not in self.elsewhere
        }


def _all_but(elsewhere: frozenset[str]) -> Owns:
    return lambda kind, key: kind != "Node" or key not in elsewhere


@contextmanager
def small_frames() -> Iterator[None]:
    """Two values a frame and two frames on their way."""
    with (
        patch.object(delivery, "FRAME_SIZE_LIMIT", 2 * delivery.ENTRY_SIZE),
        patch.object(delivery, "MAX_UNACKED_FRAMES", 2),
    ):
        yield
