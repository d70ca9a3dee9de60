"""What one worker has not been told yet: the names of changed objects, never a queue of states."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from ccm.bus.frames import Objects, encode

WINDOW = 8  # frames a worker may leave unacknowledged
FRAME_BYTES = 256 << 10  # a frame is closed once its values are this long

Name = tuple[str, str]  # kind, key
Owns = Callable[[str, str], bool]  # of kind and key: whether they are this worker's


@dataclass
class View:
    """All objects of one kind, cut down to what some workers want, as JSON text."""

    kind: str
    values: dict[str, tuple[int, bytes]] = field(default_factory=dict)  # key → version, value
    is_listed: bool = False


class Mailbox:
    """The way from the views to one worker: ordered, gap-proof, bounded, newest state only.

    It keeps the *names* of what changed and reads the value from the view when a frame leaves, so a
    slow worker costs one entry an object however often that object changes.
    """

    def __init__(
        self,
        views: Iterable[View],
        owns: Owns,
        send: Callable[[bytes], bool],
    ) -> None:
        self._views = {view.kind: view for view in views}
        self._owns, self._send = owns, send
        self._pending: dict[Name, None] = {}
        self._moved: set[Name] = set()  # pending, and to be told as no longer this worker's
        self._epoch = self._seq = self._acked = 0
        self._left = 0  # names of the snapshot that have not left yet
        self._is_complete = False
        self.frames_sent = 0

    @property
    def depth(self) -> int:
        return len(self._pending)

    @property
    def in_flight(self) -> int:
        return self._seq - self._acked

    def begin(self) -> None:
        """Send everything again as a new snapshot, once all views are listed."""
        if not all(view.is_listed for view in self._views.values()):
            return
        self._epoch += 1
        self._seq = self._acked = 0
        self._pending = {
            (kind, key): None
            for kind, view in self._views.items()
            for key in view.values
            if self._owns(kind, key)
        }
        self._left, self._is_complete = len(self._pending), False
        self._moved.clear()
        self.flush()

    @property
    def has_begun(self) -> bool:
        return self._epoch > 0

    @property
    def is_caught_up(self) -> bool:
        """Whether everything was sent and acknowledged."""
        return self.has_begun and self._is_complete and not self._pending and not self.in_flight

    def own(self, owns: Owns) -> None:
        """Follow another division of the keys: take those away that went, add those that came.

        A key that went is out of the worker's hands once the mailbox is caught up again.
        """
        before, self._owns = self._owns, owns
        for kind, view in self._views.items():
            for key in view.values:
                had, has = before(kind, key), owns(kind, key)
                if had and not has:
                    self._moved.add((kind, key))
                if had is not has:
                    self._pending[(kind, key)] = None
        self.flush()

    def reads(self, view: View) -> bool:
        return self._views.get(view.kind) is view

    def mark(self, kind: str, key: str) -> None:
        """The object changed or went away."""
        if self.has_begun and self._owns(kind, key):
            self._moved.discard((kind, key))
            self._pending[(kind, key)] = None
            self.flush()

    def acknowledge(self, seq: int) -> None:
        """The worker has taken in every frame up to `seq`."""
        self._acked = max(self._acked, min(seq, self._seq))
        self.flush()

    def flush(self) -> None:
        """Send as many frames as the window allows."""
        while self.in_flight < WINDOW and (self._pending or not self._is_complete):
            if not self._send(self._frame()):
                return  # the worker is gone; its successor begins with a snapshot

    def _frame(self) -> bytes:
        entries: list[Any] = []
        moved: list[list[str]] = []
        size = 0
        while self._pending and size < FRAME_BYTES:
            kind, key = next(iter(self._pending))
            del self._pending[(kind, key)]
            self._left -= 1
            version, value = self._value((kind, key))
            if (kind, key) in self._moved:
                self._moved.discard((kind, key))
                moved.append([kind, key])
            entries.append([kind, key, version, orjson.Fragment(value)])
            size += len(value)
        completes = not self._is_complete and self._left <= 0
        self._is_complete = self._is_complete or completes
        self._seq += 1
        self.frames_sent += 1
        return encode(Objects(self._epoch, self._seq, completes, entries, moved))

    def _value(self, name: Name) -> tuple[int, bytes]:
        gone = (0, b"null")
        return gone if name in self._moved else self._views[name[0]].values.get(name[1], gone)
