"""How long nodes wait to be initialised, as the supervisor's own watch sees it."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from heapq import nsmallest

import orjson

from ccm import metrics
from ccm.counters import Counters
from ccm.model.node import Node
from ccm.model.objects import Json, text
from ccm.supervisor.delivery import ProjectedStore

SHOWN = 20  # of those that wait


class UninitializedNodes:
    """Follows the uninitialized taint of every Node; a replica that stands by counts nothing."""

    def __init__(self, view: ProjectedStore, is_leading: Callable[[], bool]) -> None:
        self._view, self._is_leading = view, is_leading
        self._since: dict[str, tuple[str, float]] = {}  # name → UID, when it was first seen
        self.counters = Counters()
        view.listeners.append(self._note)

    def __len__(self) -> int:
        return len(self._since)

    def oldest(self, now: float) -> float:
        """Seconds that we have seen the first of them."""
        return max((now - at for _, at in self._since.values()), default=0.0)

    def status(self, now: float) -> Json:
        """How many there are, and those that wait longest with their seconds."""
        first = nsmallest(SHOWN, self._since.items(), key=lambda item: item[1][1])
        return {
            "count": len(self),
            "first": {name: round(now - at, 1) for name, (_, at) in first},
        }

    def _note(self, name: str) -> None:
        entry = self._view.values.get(name)
        node = Node(orjson.loads(entry[1])) if entry else None
        now = time.monotonic()
        uid, since = self._since.pop(name, (None, now))
        if node and node.is_uninitialized:
            self._since[name] = (node.uid, since if uid == node.uid else now)
        elif node and uid == node.uid and self._is_leading():
            self._count(node, now - since)

    def _count(self, node: Node, seconds: float) -> None:
        self.counters.observe(metrics.NODE_INITIALISATION_SECONDS, seconds=seconds)
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
