"""Which node worker owns which Node, and how the number of node workers changes."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from ccm.supervisor.child import Child
from ccm.supervisor.children import Children
from ccm.supervisor.delivery import Ownership
from ccm.supervisor.informer import SharedInformer
from ccm.worker_names import shard_names

log = logging.getLogger(__name__)

SCALE_TIMEOUT = 60.0  # seconds for new workers to sync, and for old ones to let keys go


class Shards:
    """The division of the Nodes among workers. To change it leaves no gap and no double work.

    A key first leaves its old owner, who says so by acknowledging the frame that takes it away;
    only then does the new owner get it. Workers whose keys stay do not notice.
    """

    def __init__(
        self,
        count: int,
        children: Children,
        informer: SharedInformer,
        permit: Callable[[Child], None],
    ) -> None:
        self._children, self._informer, self._permit = children, informer, permit
        self._current: tuple[str, ...] = shard_names(count)
        self._next = self._current
        self._scaling = asyncio.Lock()

    def owns(self, child: Child) -> Ownership:
        """The keys of this worker; during a change only those it keeps."""
        if child.controller != "node":
            return Ownership()
        if child.name not in self._current:
            return Ownership(child.name, (self._next,))
        return Ownership(child.name, tuple({self._current: None, self._next: None}))

    async def scale(self, count: int) -> str:
        """Divide the Nodes among `count` workers; the sentence says what was done."""
        if self._scaling.locked():
            return "a change of the number of node workers is under way already"
        async with self._scaling:
            before = len(self._current)
            self._next = shard_names(count)
            try:
                await asyncio.wait_for(self._move_keys(), SCALE_TIMEOUT)
            except TimeoutError:
                log.error("number of node workers not changed in time", extra={"wanted": count})
                self._roll_back()
                return f"not done within {SCALE_TIMEOUT:g} s; there are still {before} node workers"
            return f"{count} node workers instead of {before}"

    async def _move_keys(self) -> None:
        await self._until(lambda: not any(child.is_leaving for child in self._children))
        old = [child for child in self._children if child.name in self._current]
        added = [name for name in self._next if name not in self._current]
        self._children.add(dict.fromkeys(added, "node"), is_joining=True)
        await self._until(lambda: all(self._is_synced(name) for name in added))
        self._reassign(old)
        await self._until(lambda: all(self._informer.is_caught_up(name) for name in _idents(old)))
        leaving = [child for child in old if child.name not in self._next]
        for child in leaving:
            self._children.retire(child)
        await self._until(lambda: not any(child.processes() for child in leaving))
        self._current = self._next
        staying = [child for child in self._children if child.name in self._current]
        self._reassign(staying)
        for child in staying:
            child.is_joining = False
            self._permit(child)

    def _roll_back(self) -> None:
        """Retire the workers that were added, and give the others their keys back."""
        self._next = self._current
        for name in self._current:  # also those that were about to leave
            if child := self._children.get(name):
                child.is_leaving = False
            else:
                self._children.add({name: "node"})
        for child in self._children:
            if child.controller == "node" and child.name not in self._current:
                self._children.retire(child)
        self._reassign([child for child in self._children if child.name in self._current])

    def _reassign(self, children: Sequence[Child]) -> None:
        for child in children:
            for process in child.processes():
                self._informer.reassign(process.ident, self.owns(child))

    def _is_synced(self, name: str) -> bool:
        child = self._children.get(name)
        return bool(child and child.current and child.current.is_synced)

    @staticmethod
    async def _until(condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 - several kinds of events may make it true
            await asyncio.sleep(0.01)


def _idents(children: Sequence[Child]) -> list[str]:
    return [process.ident for child in children for process in child.processes()]
