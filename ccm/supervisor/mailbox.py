"""What one worker has not been told yet: the names of changed objects, never a queue of states."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import orjson

from ccm.bus.frames import Objects, encode

WINDOW = 8  # frames a worker may leave unacknowledged
FRAME_BYTES = 256 << 10  # a frame is closed once its values are this long

Name = tuple[str, str]  # kind, key


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
        owns: Callable[[str, str], bool],
        send: Callable[[bytes], bool],
    ) -> None:
        self._views = {view.kind: view for view in views}
        self._owns, self._send = owns, send
        self._pending: dict[Name, None] = {}
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
        self.flush()

    @property
    def has_begun(self) -> bool:
        return self._epoch > 0

    def reads(self, view: View) -> bool:
        return self._views.get(view.kind) is view

    def mark(self, kind: str, key: str) -> None:
        """The object changed or went away."""
        if self.has_begun and self._owns(kind, key):
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
        entries, size = [], 0
        while self._pending and size < FRAME_BYTES:
            kind, key = next(iter(self._pending))
            del self._pending[(kind, key)]
            self._left -= 1
            version, value = self._views[kind].values.get(key, (0, b"null"))
            entries.append([kind, key, version, orjson.Fragment(value)])
            size += len(value)
        completes = not self._is_complete and self._left <= 0
        self._is_complete = self._is_complete or completes
        self._seq += 1
        self.frames_sent += 1
        return encode(Objects(self._epoch, self._seq, completes, entries))
