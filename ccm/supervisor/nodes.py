"""What the supervisor reads of the Nodes by itself, to check what workers say of them."""

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from heapq import nsmallest

import orjson

from ccm import metrics
from ccm.counters import Counters
from ccm.decide.deletion import ObservedNode
from ccm.model.objects import UNINITIALIZED_TAINT, Node, Projection, text
from ccm.model.status import UninitializedStatus
from ccm.supervisor.delivery import ProjectedStore

NODE_PROJECTION = Projection(
    "Node",
    (
        ("metadata", "uid"),
        ("metadata", "creationTimestamp"),
        ("spec", "providerID"),
        ("spec", "taints", ("key", UNINITIALIZED_TAINT)),
        ("status", "conditions", ("type", "Ready"), "status"),
    ),
)
WAITING_SHOWN = 20  # uninitialized nodes that `status` lists by name


class NodeLister:
    """The supervisor's own view of all Nodes. Each worker's hello sets `provider_ids`."""

    def __init__(self, store: ProjectedStore) -> None:
        self.store = store
        self.provider_ids: re.Pattern[str] | None = None
        self._known: dict[str, tuple[object, ObservedNode]] = {}
        """By name, with what was read: a kubelet may write 128 KiB, and each pass asks five times.
        """
        store.handlers.append(self._forget)

    def get(self, name: str) -> ObservedNode | None:
        """The Node of this name; None when there is none, or nothing was listed yet."""
        entry = self.store.values.get(name)
        if entry is None:
            return None
        read = entry, self.provider_ids
        if name not in self._known or self._known[name][0] != read:
            self._known[name] = read, self._observed(entry[1])
        return self._known[name][1]

    def _observed(self, value: bytes) -> ObservedNode:
        node = Node(orjson.loads(value))
        # Until a worker has reported which IDs are the cloud's, every Node counts as foreign.
        is_foreign = not self.provider_ids or node.is_foreign(self.provider_ids)
        created, _ = node.age_order
        return ObservedNode(node.uid, node.is_ready, is_foreign, bool(node.provider_id), created)

    def _forget(self, name: str) -> None:
        self._known.pop(name, None)

    def count(self) -> int:
        """How many Nodes there are."""
        return len(self.store.values)


class UninitializedNodes:
    """How long Nodes carry the uninitialized taint; a standby replica counts nothing."""

    def __init__(self, store: ProjectedStore, is_leading: Callable[[], bool]) -> None:
        self._store, self._is_leading = store, is_leading
        self._since: dict[str, tuple[str, float]] = {}  # name → UID, when it was first seen
        self._unready: set[str] = set()  # initialized, and their kubelet or network is not
        self.counters = Counters()
        store.handlers.append(self._on_change)

    def __len__(self) -> int:
        return len(self._since)

    def oldest(self, now: float) -> float:
        """Seconds since the first of them was seen."""
        return max((now - at for _, at in self._since.values()), default=0.0)

    def status(self, now: float) -> UninitializedStatus:
        """How many there are, those that wait longest with their seconds, and others not Ready."""
        first = nsmallest(WAITING_SHOWN, self._since.items(), key=lambda item: item[1][1])
        return {
            "count": len(self),
            "first": {name: round(now - at, 1) for name, (_, at) in first},
            "initialized_not_ready": len(self._unready),
        }

    def _on_change(self, name: str) -> None:
        entry = self._store.values.get(name)
        node = Node(orjson.loads(entry[1])) if entry else None
        now = time.monotonic()
        uid, since = self._since.pop(name, (None, now))
        if node and node.is_uninitialized:
            self._since[name] = (node.uid, since if uid == node.uid else now)
        elif node and uid == node.uid and self._is_leading():
            self._observe(node, now - since)
        is_unready = node and not node.is_uninitialized and not node.is_ready
        (self._unready.add if is_unready else self._unready.discard)(name)

    def _observe(self, node: Node, seconds: float) -> None:
        self.counters.observe(metrics.NODE_INITIALIZATION_SECONDS, seconds=seconds)
        if (age := _age(node)) is not None:
            self.counters.observe(metrics.TAINT_REMOVAL_DELAY_SECONDS, seconds=age)
            self.counters.observe(metrics.INITIAL_NODE_SYNC_DELAY_SECONDS, seconds=age)


def _age(node: Node) -> float | None:
    """Seconds since its creation, by two clocks: good enough for upstream's coarse buckets."""
    try:
        created = datetime.fromisoformat(text(node.meta.get("creationTimestamp")))
        return max((datetime.now(UTC) - created).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None
