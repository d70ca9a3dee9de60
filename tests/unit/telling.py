"""A feed of two kinds and a worker that takes it in, for tests of what lies between."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import orjson
import pytest

from ccm.bus.frames import Objects, decode
from ccm.model.projection import Projection
from ccm.supervisor import delivery
from ccm.supervisor.delivery import DeliveryQueue, Owns, ProjectedStore
from workers.store import Gap, Store

PROJECTIONS = (Projection("Node", ()), Projection("Service", ()))


class Worker:
    """A receiver: the frames on their way to it, and the store it takes them into."""

    def __init__(self) -> None:
        self.store = Store(PROJECTIONS)
        self.on_the_way: deque[bytes] = deque()
        self.is_there = True
        self.completed = 0
        self.moved: list[str] = []

    def send(self, frame: bytes) -> bool:
        if self.is_there:
            self.on_the_way.append(frame)
        return self.is_there

    def take_one(self) -> int | str | None:
        """What the worker answers to its next frame: a number to acknowledge, or a complaint."""
        if not self.on_the_way:
            return None
        message = decode(self.on_the_way.popleft())
        assert isinstance(message, Objects)
        try:
            self.completed += self.store.absorb(message).completed
        except Gap as gap:
            return str(gap)
        self.moved += [key for _, key in message.moved]
        return message.seq


class SharedInformer:
    """Views of two kinds, and one mailbox on them."""

    def __init__(self) -> None:
        self.nodes, self.services = ProjectedStore("Node"), ProjectedStore("Service")
        self.version = 0
        self.elsewhere = frozenset({"other"})
        self.worker = Worker()
        self.join()

    def join(self) -> None:
        """Another start of the worker."""
        self.worker = Worker()
        owns = _all_but(self.elsewhere)
        self.box = DeliveryQueue((self.nodes, self.services), owns, self.worker.send)
        self.box.begin()

    def move(self, *elsewhere: str) -> None:
        """From now on exactly these keys belong to other workers."""
        self.elsewhere = frozenset(elsewhere)
        self.box.own(_all_but(self.elsewhere))

    def listed(self) -> "SharedInformer":
        self.nodes.is_listed = self.services.is_listed = True
        self.box.begin()
        return self

    def put(self, key: str, text: object, view: ProjectedStore | None = None) -> None:
        view = view or self.nodes
        self.version += 1
        view.values[key] = (self.version, orjson.dumps({"is": text}))
        self.box.mark(view.kind, key)
        self.box.flush()

    def delete(self, key: str) -> None:
        if self.nodes.values.pop(key, None):
            self.box.mark("Node", key)
            self.box.flush()

    def deliver(self) -> None:
        """The worker takes one frame and answers."""
        answer = self.worker.take_one()
        if isinstance(answer, int):
            self.box.acknowledge(answer)
        elif answer:
            self.box.begin()

    def settle(self) -> None:
        for _ in range(10_000):
            if not self.worker.on_the_way:
                return
            self.deliver()
        pytest.fail("the feed does not come to rest")

    def told(self) -> dict[str, object]:
        """The Nodes the worker knows."""
        names = [key for kind, key in self.worker.store.names() if kind == "Node"]
        return {key: (self.worker.store.get("Node", key) or {})["is"] for key in names}

    def there(self) -> dict[str, object]:
        """The Nodes there are for this worker."""
        return {
            key: orjson.loads(value)["is"]
            for key, (_, value) in self.nodes.values.items()
            if key not in self.elsewhere
        }


def _all_but(elsewhere: frozenset[str]) -> Owns:
    return lambda kind, key: key not in elsewhere


@contextmanager
def small_frames() -> Iterator[None]:
    """Two values a frame and two frames on their way."""
    with patch.object(delivery, "FRAME_BYTES", 20), patch.object(delivery, "WINDOW", 2):
        yield
