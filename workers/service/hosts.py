"""The Nodes behind the load balancers: the same set for every Service, debounced."""

import asyncio
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from ccm.model.objects import Node
from workers.timings import Timings

EXCLUDE_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"
TO_BE_DELETED_TAINT = "ToBeDeletedByClusterAutoscaler"
FALSE_VALUES = frozenset({"0", "f", "F", "false", "False", "FALSE"})  # Go's strconv.ParseBool

Pairs = frozenset[tuple[str, str]]
HostIdentity = tuple[str, str, Pairs, Pairs, bool]
"""Name, provider ID, addresses of a Node, by which a cloud reaches it, labels that count, and
whether it is off, if that counts."""


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
    """The hosts of one cloud, kept Node by Node; `holder` names an older Node on one's machine.

    With `minds_power` a Node that is shut down is another host than before.
    """

    def __init__(
        self,
        provider_ids: re.Pattern[str],
        holder: Callable[[str], str],
        timings: Timings,
        minds_power: bool = False,
    ) -> None:
        self._minds_power = minds_power
        self._provider_ids, self._holder, self._timings = provider_ids, holder, timings
        self._by_name: dict[str, tuple[Node, HostIdentity]] = {}
        self._labels: frozenset[str] = frozenset()
        self._hosts: Hosts | None = None
        self._changed = asyncio.Event()
        self.is_debounced = True  # no Node changed since `debounced` returned

    def update(self, name: str, node: Node | None) -> None:
        """Take in a Node that was added or changed, or deleted when it is None."""
        if node and may_be_host(node, self._provider_ids):
            self._by_name[name] = node, self._identity(node)
        else:
            self._by_name.pop(name, None)
        self._hosts = None
        self.is_debounced = False
        self._changed.set()

    def choose_by(self, labels: Collection[str]) -> None:
        """Take a change of these labels of a Node for a change of hosts from now on."""
        if not self._labels.issuperset(labels):
            self._labels |= frozenset(labels)
            nodes = [node for node, _ in self._by_name.values()]
            self._by_name = {one.name: (one, self._identity(one)) for one in nodes}
            self._hosts = None

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

    def _identity(self, node: Node) -> HostIdentity:
        addresses = (
            (str(entry.get("type")), str(entry.get("address"))) for entry in node.addresses
        )
        chosen = ((key, node.labels[key]) for key in self._labels if key in node.labels)
        is_off = self._minds_power and node.is_shut_down
        return node.name, node.provider_id, frozenset(addresses), frozenset(chosen), is_off
