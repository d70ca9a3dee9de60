"""What one worker has not been told yet: the names of changed objects, never a queue of states."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from ccm.bus.frames import Objects, encode

WINDOW = 8  # frames a worker may leave unacknowledged
FRAME_BYTES = 256 << 10  # a frame is closed once its values are this long

GONE = (0, b"null")  # version and value of what is not there

Name = tuple[str, str]  # kind, key
Owns = Callable[[str, str], bool]  # of kind and key: whether they are this worker's


@dataclass
class ProjectedStore:
    """All objects of one kind, cut down to what some workers want, as JSON text."""

    kind: str
    values: dict[str, tuple[int, bytes]] = field(default_factory=dict)  # key → version, value
    is_listed: bool = False
    listeners: list[Callable[[str], None]] = field(default_factory=list)  # of keys that changed


class DeliveryQueue:
    """The way from the views to one worker: ordered, gap-proof, bounded, newest state only.

    It keeps the *names* of what changed and reads the value from the view when a frame leaves, so a
    slow worker costs one entry an object however often that object changes.
    """

    def __init__(
        self,
        views: Iterable[ProjectedStore],
        owns: Owns,
        send: Callable[[bytes], bool],
    ) -> None:
        self._views = {view.kind: view for view in views}
        self._owns, self._send = owns, send
        self._pending: dict[Name, None] = {}  # those that are not its own moved elsewhere
        self._epoch = self._seq = self._acked = 0
        self._left = 0  # names of the snapshot that have not left yet: the first in `_pending`
        self._is_complete = False
        self._is_refused = False  # the last frame was not taken
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
        moved = [name for name in self._pending if not self._owns(*name)]
        owned = (
            (kind, key)
            for kind, view in self._views.items()
            for key in view.values
            if self._owns(kind, key)
        )
        self._pending = dict.fromkeys((*moved, *owned))
        self._left, self._is_complete = len(self._pending), False
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
        if not self.has_begun:
            return
        for kind, view in self._views.items():
            for key in view.values:
                if before(kind, key) is not owns(kind, key):
                    self._pending[(kind, key)] = None
        self.flush()

    def reads(self, view: ProjectedStore) -> bool:
        return self._views.get(view.kind) is view

    def mark(self, kind: str, key: str) -> None:
        """The object changed or went away; `flush` tells the worker."""
        if self.has_begun and self._owns(kind, key):
            self._pending[(kind, key)] = None

    def acknowledge(self, seq: int) -> None:
        """The worker has taken in every frame up to `seq`."""
        was_full = self.in_flight >= WINDOW
        self._acked = max(self._acked, min(seq, self._seq))
        if was_full:
            self.flush()

    def try_again(self) -> None:
        """Send what was not taken."""
        self._is_refused = False
        self.flush()

    def flush(self) -> None:
        """Send as many frames as the window allows; what is not taken stays here."""
        if not self.has_begun or self._is_refused:
            return
        while self.in_flight < WINDOW and (self._pending or not self._is_complete):
            frame = self._frame()
            if not self._send(encode(frame)):
                self._is_refused = True
                return
            self._note_sent(frame)

    def _frame(self) -> Objects:
        """The next frame. A snapshot ends with a frame of its own: later news is not part of it."""
        entries: list[Any] = []
        moved: list[list[str]] = []
        size = 0
        for kind, key in self._pending:
            if self._owns(kind, key):
                version, value = self._views[kind].values.get(key, GONE)
            else:
                version, value = GONE
                moved.append([kind, key])
            entries.append([kind, key, version, orjson.Fragment(value)])
            size += len(value)
            if size >= FRAME_BYTES or len(entries) == self._left:
                break
        completes = not self._is_complete and len(entries) >= self._left
        return Objects(self._epoch, self._seq + 1, completes, entries, moved)

    def _note_sent(self, frame: Objects) -> None:
        for kind, key, *_ in frame.entries:
            del self._pending[(kind, key)]
        self._left = max(self._left - len(frame.entries), 0)
        self._is_complete = self._is_complete or frame.complete
        self._seq = frame.seq
        self.frames_sent += 1
