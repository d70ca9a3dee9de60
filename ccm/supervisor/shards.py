"""Which node worker owns which node, and the way from one number of workers to another."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from ccm.controllers import LIFECYCLE, NODE, ROUTE, SERVICE, VOLUME, is_enabled
from ccm.decide.shards import owner
from ccm.settings import Settings
from ccm.supervisor.child import Child
from ccm.supervisor.children import Children
from ccm.supervisor.delivery import Owns
from ccm.supervisor.informer import SharedInformer

log = logging.getLogger(__name__)

PATIENCE = 60.0  # seconds for new workers to get ready, and for old ones to let keys go


SINGLE = {
    "route": ("route", ROUTE),
    "service": ("service", SERVICE),
    "volume-label": ("volume_label", VOLUME),
}
"""Workers that are one process each: name → package under `workers`, name in `--controllers`."""


def names(count: int) -> tuple[str, ...]:
    return tuple(f"node-{number}" for number in range(count))


def controller_names(controller: str) -> tuple[str, ...]:
    """What `--controllers` calls the work of the package `workers.<controller>`."""
    if controller == "node":
        return (NODE, LIFECYCLE)
    return tuple(name for package, name in SINGLE.values() if package == controller)


def wanted_workers(settings: Settings) -> dict[str, str]:
    """Worker name → package under `workers`, for the controllers that are enabled."""
    wanted: dict[str, str] = {}
    if any(is_enabled(name, settings.controllers) for name in controller_names("node")):
        wanted |= dict.fromkeys(names(settings.node_workers), "node")  # first: nodes wait for them
    for worker, (package, name) in SINGLE.items():
        if is_enabled(name, settings.controllers):
            wanted[worker] = package
    return wanted


class Shards:
    """The division of the nodes. A change of it moves keys without a gap and without double work.

    A key first leaves the hands of its old owner, who says so by acknowledging the frame that takes
    it away; only then does the new owner get it. Workers whose keys stay do not notice.
    """

    def __init__(
        self, count: int, children: Children, feed: SharedInformer, permit: Callable[[Child], None]
    ) -> None:
        self._children, self._feed, self._permit = children, feed, permit
        self._now: Sequence[str] = names(count)
        self._next: Sequence[str] = self._now
        self._change = asyncio.Lock()

    @property
    def names(self) -> Sequence[str]:
        return self._now

    def owns(self, child: Child) -> Owns:
        """What belongs to this worker; during a change only what it keeps."""
        if child.controller != "node":
            return lambda kind, key: True
        now, coming, name = self._now, self._next, child.name
        if name not in now:
            return lambda kind, key: kind != "Node" or owner(key, coming) == name
        if now == coming:
            return lambda kind, key: kind != "Node" or owner(key, now) == name
        return lambda kind, key: kind != "Node" or owner(key, now) == owner(key, coming) == name

    async def scale(self, count: int) -> str:
        """Divide the nodes among `count` workers; the sentence says what was done."""
        if self._change.locked():
            return "a change of the number of node workers is under way already"
        async with self._change:
            before = len(self._now)
            self._next = names(count)
            try:
                await asyncio.wait_for(self._move(), PATIENCE)
            except TimeoutError:
                log.error("number of node workers not changed in time", extra={"wanted": count})
                self._give_up()
                return f"not done within {PATIENCE:g} s; there are still {before} node workers"
            return f"{count} node workers instead of {before}"

    async def _move(self) -> None:
        old = [child for child in self._children if child.name in self._now]
        newcomers = [name for name in self._next if name not in self._now]
        self._children.add(dict.fromkeys(newcomers, "node"), is_held=True)
        await self._until(lambda: all(self._is_synced(name) for name in newcomers))
        self._divide(old)
        await self._until(lambda: all(self._feed.is_caught_up(ident) for ident in _idents(old)))
        leaving = [child for child in old if child.name not in self._next]
        for child in leaving:
            self._children.let_go(child)
        await self._until(lambda: not any(child.running() for child in leaving))
        self._now = self._next
        stay = [child for child in self._children if child.name in self._now]
        self._divide(stay)
        for child in stay:
            if child.current:
                child.current.is_held = False
                self._permit(child)

    def _give_up(self) -> None:
        """Back to the division that was: whoever came leaves, whoever was gets its keys back."""
        self._next = self._now
        for child in self._children:
            if child.controller == "node" and child.name not in self._now:
                self._children.let_go(child)
        self._divide([child for child in self._children if child.name in self._now])

    def _divide(self, children: Sequence[Child]) -> None:
        for child in children:
            for start in child.running():
                self._feed.divide(start.ident, self.owns(child))

    def _is_synced(self, name: str) -> bool:
        child = self._children.named(name)
        return bool(child and child.current and child.current.is_synced)

    @staticmethod
    async def _until(is_so: Callable[[], bool]) -> None:
        while not is_so():  # noqa: ASYNC110 - several kinds of events may make it so
            await asyncio.sleep(0.01)


def _idents(children: Sequence[Child]) -> list[str]:
    return [start.ident for child in children for start in child.running()]
