"""The Nodes behind the load balancers: the same set for every Service, debounced."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from ccm.model.objects import Node
from workers.timings import Timings

EXCLUDE_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"
TO_BE_DELETED_TAINT = "ToBeDeletedByClusterAutoscaler"
FALSE_VALUES = frozenset({"0", "f", "F", "false", "False", "FALSE"})  # Go's strconv.ParseBool

HostIdentity = tuple[str, str, frozenset[tuple[str, str]]]
"""Name, provider ID and addresses of a Node: what a cloud reaches it by."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """A set of Nodes, by name; two are equal when a balancer could not tell them apart."""

    nodes: tuple[Node, ...] = field(compare=False)
    identities: frozenset[HostIdentity]

    @property
    def names(self) -> list[str]:
        return [node.name for node in self.nodes]


def may_be_host(node: Node, provider_ids: re.Pattern[str]) -> bool:
    """Whether a Node belongs behind the balancers of the cloud with these provider IDs.

    Readiness does not count: a balancer's health check is faster and does not flap with it.
    """
    is_leaving = node.is_being_deleted or any(
        taint.get("key") == TO_BE_DELETED_TAINT for taint in node.taints
    )
    is_excluded = node.labels.get(EXCLUDE_LABEL, "false") not in FALSE_VALUES
    return not (is_leaving or is_excluded or node.is_foreign(provider_ids))


class HostSet:
    """The hosts of one cloud, kept Node by Node; `holder` names an older Node on one's machine."""

    def __init__(
        self, provider_ids: re.Pattern[str], holder: Callable[[str], str], timings: Timings
    ) -> None:
        self._provider_ids, self._holder, self._timings = provider_ids, holder, timings
        self._by_name: dict[str, tuple[Node, HostIdentity]] = {}
        self._hosts: Hosts | None = None
        self._changed = asyncio.Event()
        self.is_debounced = True  # no Node changed since `debounced` returned

    def update(self, name: str, node: Node | None) -> None:
        """Take in a Node that was added or changed, or deleted when it is None."""
        if node and may_be_host(node, self._provider_ids):
            self._by_name[name] = node, _identity(node)
        else:
            self._by_name.pop(name, None)
        self._hosts = None
        self.is_debounced = False
        self._changed.set()

    def __len__(self) -> int:
        return len(self._by_name)

    def current(self) -> Hosts:
        """The hosts as they are now, debounced or not."""
        if self._hosts is None:
            names = sorted(name for name in self._by_name if not self._holder(name))
            hosts = [self._by_name[name] for name in names]
            identities = frozenset(identity for _, identity in hosts)
            self._hosts = Hosts(tuple(node for node, _ in hosts), identities)
        return self._hosts

    async def debounced(self) -> Hosts:
        """The next set of hosts after a change, once no other change has followed for a moment."""
        await self._changed.wait()
        try:
            async with asyncio.timeout(self._timings.node_debounce_limit):
                while self._changed.is_set():
                    self._changed.clear()
                    await asyncio.sleep(self._timings.node_debounce)
        except TimeoutError:
            self._changed.clear()
        self.is_debounced = True
        return self.current()


def _identity(node: Node) -> HostIdentity:
    addresses = ((str(entry.get("type")), str(entry.get("address"))) for entry in node.addresses)
    return node.name, node.provider_id, frozenset(addresses)
