"""The hosts as the store has them: kept node by node, announced when Nodes are at rest."""

import asyncio

from ccm.model.node import Node
from workers.service.hosts import Host, Hosts, host_of, hosts_of
from workers.store import Store

QUIET = 0.2  # seconds without a change of any Node after which they are at rest
PATIENCE = 2.0  # seconds after which balancers are updated although Nodes keep changing


class HostSet:
    """Follows the Nodes of the store; `note_change` has to be called for each that changed."""

    def __init__(self, store: Store, scheme: str) -> None:
        self._store, self._scheme = store, scheme
        self._by_name: dict[str, Host] = {}
        self._hosts: Hosts | None = None
        self._changed = asyncio.Event()
        self.is_at_rest = True

    def note_change(self, name: str) -> None:
        """A Node changed, came or went."""
        raw = self._store.get("Node", name)
        host = host_of(Node(raw), self._scheme) if raw is not None else None
        if host:
            self._by_name[name] = host
        else:
            self._by_name.pop(name, None)
        self._hosts = None
        self.is_at_rest = False
        self._changed.set()

    def __len__(self) -> int:
        return len(self._by_name)

    def now(self) -> Hosts:
        if self._hosts is None:
            self._hosts = hosts_of(self._by_name.values())
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
