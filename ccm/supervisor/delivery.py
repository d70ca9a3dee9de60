"""What one worker was not sent yet: the names of changed objects, never a queue of their states."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from ccm.bus.frames import Objects, encode

MAX_UNACKED_FRAMES = 8  # that a worker may have on their way to it
FRAME_SIZE_LIMIT = 256 << 10  # bytes of names and values after which a frame is closed
ENTRY_SIZE = 64  # bytes of an entry besides its key, which stands in `moved` as well

ABSENT = (0, b"")  # version and value of an object that does not exist

ObjectName = tuple[str, str]  # kind, key
Owns = Callable[[str, str], bool]  # of kind and key: whether they are this worker's


def owner(key: str, shards: Sequence[str]) -> str:
    """The shard that owns `key`, the same in every process and on every host.

    Rendezvous hashing: few keys move when the number of shards changes.
    """
    if len(shards) == 1:
        return shards[0]
    return max(shards, key=lambda shard: blake2b(f"{shard}/{key}".encode(), digest_size=8).digest())


@dataclass(frozen=True, slots=True)
class Ownership:
    """Which keys are a worker's: Nodes that it owns in each of `divisions`, and all other objects.

    A division is the names of the shards among which the Nodes are divided.
    """

    worker: str = ""
    divisions: tuple[tuple[str, ...], ...] = ()

    def __call__(self, kind: str, key: str) -> bool:
        return kind != "Node" or all(owner(key, shards) == self.worker for shards in self.divisions)


@dataclass
class ProjectedStore:
    """All objects of one kind, cut down to the fields some workers want, as JSON text."""

    kind: str
    values: dict[str, tuple[int, bytes]] = field(default_factory=dict)  # key → version, value
    has_synced: bool = False  # a list was complete
    handlers: list[Callable[[str], None]] = field(default_factory=list)  # get keys that changed


class DeliveryQueue:
    """The way from the stores to one worker: ordered, bounded, newest state only.

    It keeps the *names* of what changed and reads the value from the store when a frame leaves, so
    a slow worker costs one entry an object however often that object changes.
    """

    def __init__(
        self,
        stores: Iterable[ProjectedStore],
        owns: Owns,
        send: Callable[[bytes], bool],
    ) -> None:
        self._stores = {store.kind: store for store in stores}
        self._owns, self._send = owns, send
        self._pending: dict[ObjectName, None] = {}  # also those that moved to another worker
        self._moved: dict[ObjectName, int] = {}  # name → frame that says so, unacknowledged
        self._epoch = self._seq = self._acked = 0
        self._snapshot_left = 0  # names of the snapshot still to send: the first in `_pending`
        self._is_complete = False
        self._is_blocked = False  # the socket did not take the last frame
        self._restores = 0  # of the API server, to an older state
        self.frames_sent = 0

    @property
    def depth(self) -> int:
        return len(self._pending)

    @property
    def in_flight(self) -> int:
        return self._seq - self._acked

    def send_snapshot(self) -> None:
        """Send everything again as a new snapshot, once all stores have synced."""
        if not all(store.has_synced for store in self._stores.values()):
            return
        self._epoch += 1
        self._seq = self._acked = 0
        moved = [name for name in (*self._moved, *self._pending) if not self._owns(*name)]
        self._moved = {}
        owned = (
            (kind, key)
            for kind, store in self._stores.items()
            for key in store.values
            if self._owns(kind, key)
        )
        self._pending = dict.fromkeys((*moved, *owned))
        self._snapshot_left, self._is_complete = len(self._pending), False
        self.flush()

    def on_restored(self) -> None:
        """The API server went back to an older state: the worker forgets what seems newer."""
        self._restores += 1
        self.send_snapshot()

    @property
    def has_begun(self) -> bool:
        return self._epoch > 0

    @property
    def is_caught_up(self) -> bool:
        """Whether everything was sent and acknowledged."""
        return self.has_begun and self._is_complete and not self._pending and not self.in_flight

    def reassign(self, owns: Owns) -> None:
        """Own other keys from now on: send those that came, take away those that went.

        A key that went is out of the worker's hands once the queue is caught up again.
        """
        before, self._owns = self._owns, owns
        if not self.has_begun:
            return
        for kind, store in self._stores.items():
            for key in store.values:
                if before(kind, key) is not owns(kind, key):
                    self._pending[(kind, key)] = None
        self.flush()

    def reads(self, store: ProjectedStore) -> bool:
        """Whether the worker gets the objects of this store."""
        return self._stores.get(store.kind) is store

    def add(self, kind: str, key: str) -> None:
        """The object changed or went away; `flush` sends it."""
        if self.has_begun and self._owns(kind, key):
            self._pending[(kind, key)] = None

    def acknowledge(self, epoch: int, seq: int) -> None:
        """The worker has taken in every frame of the snapshot `epoch` up to `seq`."""
        if epoch != self._epoch:
            return  # sent before the worker heard of the newest snapshot
        was_full = self.in_flight >= MAX_UNACKED_FRAMES
        self._acked = max(self._acked, min(seq, self._seq))
        self._moved = {name: sent for name, sent in self._moved.items() if sent > self._acked}
        if was_full:
            self.flush()

    def retry(self) -> None:
        """Send what the socket did not take."""
        self._is_blocked = False
        self.flush()

    def flush(self) -> None:
        """Send as many frames as may be in flight; what is not taken stays here."""
        if not self.has_begun or self._is_blocked:
            return
        while self.in_flight < MAX_UNACKED_FRAMES and (self._pending or not self._is_complete):
            frame = self._next_frame()
            if not self._send(encode(frame)):
                self._is_blocked = True
                return
            self._on_sent(frame)

    def _next_frame(self) -> Objects:
        """A snapshot ends with a frame of its own: later changes are not part of it."""
        entries: list[Any] = []
        values: list[bytes] = []
        moved: list[list[str]] = []
        size = 0
        for kind, key in self._pending:
            if self._owns(kind, key):
                version, value = self._stores[kind].values.get(key, ABSENT)
            else:
                version, value = ABSENT
                moved.append([kind, key])
            entries.append([kind, key, version])
            values.append(value)
            size += len(value) + 2 * len(key) + ENTRY_SIZE
            if size >= FRAME_SIZE_LIMIT or len(entries) == self._snapshot_left:
                break
        completes = not self._is_complete and len(entries) >= self._snapshot_left
        seq, restores = self._seq + 1, self._restores
        return Objects(self._epoch, seq, completes, entries, values, moved, restores)

    def _on_sent(self, frame: Objects) -> None:
        for kind, key, _ in frame.entries:
            del self._pending[(kind, key)]
        moved = ((kind, key) for kind, key in frame.moved)
        self._moved |= dict.fromkeys(moved, frame.seq)
        self._snapshot_left = max(self._snapshot_left - len(frame.entries), 0)
        self._is_complete = self._is_complete or frame.complete
        self._seq = frame.seq
        self.frames_sent += 1
