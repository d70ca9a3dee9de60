"""The hosts as the store has them: worked out once a change, announced when Nodes are at rest."""

import asyncio

from ccm.model.node import Node
from workers.service.hosts import Hosts, hosts_of
from workers.store import Store

QUIET = 0.2  # seconds without a change of any Node after which they are at rest
PATIENCE = 2.0  # seconds after which balancers are updated although Nodes keep changing


class HostSet:
    """The hosts as the store has them now."""

    def __init__(self, store: Store, scheme: str) -> None:
        self._store, self._scheme = store, scheme
        self._hosts: Hosts | None = None
        self._changed = asyncio.Event()
        self.is_at_rest = True

    def note_change(self) -> None:
        """A Node changed, came or went."""
        self._hosts = None
        self.is_at_rest = False
        self._changed.set()

    def now(self) -> Hosts:
        if self._hosts is None:
            raws = (
                self._store.get(kind, key) for kind, key in self._store.names() if kind == "Node"
            )
            self._hosts = hosts_of((Node(raw) for raw in raws if raw is not None), self._scheme)
        return self._hosts

    async def settled(self) -> Hosts:
        """The next set of hosts after a change, once no other change has followed for a moment."""
        await self._changed.wait()
        try:
            async with asyncio.timeout(PATIENCE):
                while self._changed.is_set():
                    self._changed.clear()
                    await asyncio.sleep(QUIET)
        except TimeoutError:
            self._changed.clear()
        self.is_at_rest = True
        return self.now()
