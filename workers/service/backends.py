"""The Nodes behind the load balancers: the same set for every Service, debounced."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice

from ccm.background import call_later
from ccm.decide.budget import Allowances
from ccm.model.objects import (
    NODE_IDENTITY_PATHS,
    SHUTDOWN_TAINT,
    UNINITIALIZED_TAINT,
    FieldPath,
    Node,
)
from workers.timings import Timings

EXCLUDE_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"
TO_BE_DELETED_TAINT = "ToBeDeletedByClusterAutoscaler"
CHANGES, CHANGE_PAUSE = 5, 60.0
"""So many changes of a Node, which its kubelet may cause, count at once; then one in so many
seconds."""
NODE_FIELDS: tuple[FieldPath, ...] = (
    *NODE_IDENTITY_PATHS,
    ("metadata", "deletionTimestamp"),
    ("metadata", "labels"),  # a provider may choose backends by them
    ("spec", "taints", ("key", TO_BE_DELETED_TAINT)),
    ("spec", "taints", ("key", SHUTDOWN_TAINT)),
    ("spec", "taints", ("key", UNINITIALIZED_TAINT)),
    ("status", "addresses"),
    ("status", "conditions", ("type", "Ready"), "status"),
)
MOST_NODES = 100_000  # whose changes are remembered
MOST_LABELS = 50  # of Nodes that one Service chooses by
MOST_ADDRESSES = 100  # of a Node; no load balancer looks at more
FALSE_VALUES = frozenset({"0", "f", "F", "false", "False", "FALSE"})  # Go's strconv.ParseBool

BackendIdentity = tuple[str, str, int, str, bool]
"""Name, provider ID, a hash of the addresses of a Node, by which a cloud reaches it, labels that
count, and whether it is off, if that counts."""


@dataclass(frozen=True, slots=True)
class Backends:
    """A set of Nodes, by name; two are equal when a load balancer could not distinguish them."""

    names: tuple[str, ...] = field(compare=False)
    identities: frozenset[BackendIdentity]
    read: Callable[[Sequence[str]], Sequence[Node]] = field(compare=False, default=lambda _: ())

    @property
    def nodes(self) -> Sequence[Node]:
        """The Nodes as they are now; one that was deleted meanwhile is not among them."""
        return self.read(self.names)


def may_be_backend(node: Node, provider_ids: re.Pattern[str]) -> bool:
    """Whether a Node belongs behind the balancers of the cloud with these provider IDs.

    Readiness does not count: a balancer's health check is faster and does not flap with it. A Node
    without a provider ID may be another cloud's, or on no machine of any.
    """
    return bool(node.provider_id) and _may_become_backend(node, provider_ids)


def _may_become_backend(node: Node, provider_ids: re.Pattern[str]) -> bool:
    """Whether it is a backend once its provider ID is known."""
    is_excluded = node.labels.get(EXCLUDE_LABEL, "false") not in FALSE_VALUES
    return not (_is_leaving(node) or is_excluded or node.is_foreign(provider_ids))


def _is_leaving(node: Node) -> bool:
    return node.is_being_deleted or any(
        taint.get("key") == TO_BE_DELETED_TAINT for taint in node.taints
    )


class BackendSet:
    """The backends of one cloud, kept Node by Node; `why_not` says what speaks against a Node.

    `read` finds a Node, for the cloud: it is kept from then on, which thousands of Nodes are not
    where no Service has a load balancer. With `minds_power` a Node that is shut down is another
    backend than before.
    """

    def __init__(
        self,
        provider_ids: re.Pattern[str],
        why_not: Callable[[str], str],
        read: Callable[[str], Node | None],
        timings: Timings,
        minds_power: bool = False,
    ) -> None:
        self._minds_power = minds_power
        self._provider_ids, self._why_not, self._timings = provider_ids, why_not, timings
        self._read = read
        self._identities: dict[str, BackendIdentity | None] = {}  # by name; None for no backend
        self._nodes: dict[str, Node] = {}  # those that were read
        self._initializing: dict[str, float] = {}  # by name, since when
        self._chosen_by: dict[str, frozenset[str]] = {}  # keys of labels, by Service
        self._labels = Counter[str]()  # how many Services choose by each
        self._changes = Allowances[str](CHANGES, CHANGE_PAUSE, MOST_NODES)
        self._waited_in_vain_at = float("-inf")
        self._paused: dict[str, asyncio.TimerHandle] = {}  # by the name of the Node
        self._backends: Backends | None = None
        self._changed = asyncio.Event()
        self.is_debounced = True  # no Node changed since `debounced` returned

    def update(self, name: str, node: Node | None) -> None:
        """Take in a Node that was added or changed, or deleted when it is None."""
        before = self._identities.get(name)
        self._nodes.pop(name, None)
        identity = self._next_identity(name, node)
        may_become_one = node is not None and _may_become_backend(node, self._provider_ids)
        if node and may_become_one and node.is_uninitialized:
            self._initializing.setdefault(name, time.monotonic())
        elif self._initializing.pop(name, None) and not identity:
            self._waited_in_vain_at = time.monotonic()
        if before != identity:
            self.invalidate()
        elif node and identity and identity[1] != node.provider_id:
            self._backends = None  # kept, on another machine: whose that is may not be known yet

    def invalidate(self) -> None:
        """The backends are others than before, or what speaks against some of them is."""
        self._backends = None
        self.is_debounced = False
        self._changed.set()

    def _next_identity(self, name: str, node: Node | None) -> BackendIdentity | None:
        """Keep the Node's own, None for no backend; for a while the one before if it often changes.

        A kubelet writes its addresses and labels, also the one that keeps it from being a backend,
        and it may delete its Node and register again, with another provider ID, which may look like
        a change: each is a call for every Service. One that is gone leaves at once, and comes back
        as seldom as one that changed.
        """
        if node is None:
            if self._identities.pop(name, None):
                self._changes.take(name, time.monotonic())
            return None
        after = self._identity(node) if may_be_backend(node, self._provider_ids) else None
        before = self._identities.get(name, None if name in self._changes else after)
        may_be_by_kubelet = before != after and not _is_leaving(node)
        pause = self._changes.take(name, time.monotonic()) if may_be_by_kubelet else 0.0
        if pause and name not in self._paused:
            self._paused[name] = call_later(pause, self._on_pause_end, name)
        self._identities[name] = before if pause else after
        return self._identities[name]

    def _on_pause_end(self, name: str) -> None:
        self._paused.pop(name, None)
        self.update(name, self._read(name))

    def choose_by(self, service: str, labels: Collection[str]) -> None:
        """Take a change of these labels of a Node for a change of backends.

        Tenants name them, as many as an annotation holds: of one Service the first few count, and a
        label that no Node has costs nothing.
        """
        wanted = frozenset(islice(labels, MOST_LABELS))
        before = self._chosen_by.pop(service, frozenset())
        if wanted:
            self._chosen_by[service] = wanted
        new = wanted - self._labels.keys()
        self._labels.update(wanted - before)
        for label in before - wanted:
            self._labels[label] -= 1
            if not self._labels[label]:
                del self._labels[label]
        names = [name for name, identity in self._identities.items() if identity] if new else []
        for node in self._read_all(names):
            if not new.isdisjoint(node.labels):
                self._identities[node.name] = self._identity(node)
                self._backends = None

    def __len__(self) -> int:
        return sum(map(bool, self._identities.values()))

    def current(self) -> Backends:
        """The backends as they are now, debounced or not."""
        if self._backends is None:
            found = {
                name: identity
                for name, identity in sorted(self._identities.items())
                if identity and not self._why_not(name)
            }
            self._backends = Backends((*found,), frozenset(found.values()), self._read_all)
        return self._backends

    def initialized_by(self) -> float:
        """When no Node is waited for any more that is being initialized now; or sooner.

        Where they are fewer than the others, none is, nor for a while after one was waited for in
        vain: a kubelet may register Nodes ever again, also under ever new names.
        """
        limit, now = self._timings.node_initialization_limit, time.monotonic()
        if any(since + limit < now for since in self._initializing.values()):
            self._waited_in_vain_at = now
        to_come = sum(not self._identities.get(name) for name in self._initializing)
        are_few = 2 * len(self._initializing) < len(self) + to_come
        if are_few or now - self._waited_in_vain_at < CHANGE_PAUSE:
            return float("-inf")
        return max(self._initializing.values(), default=float("-inf")) + limit

    async def debounced(self) -> None:
        """Return after a change of backends, once no other change has followed for a moment."""
        await self._changed.wait()
        try:
            async with asyncio.timeout(self._timings.node_debounce_limit):
                while self._changed.is_set():
                    self._changed.clear()
                    await asyncio.sleep(self._timings.node_debounce)
        except TimeoutError:
            self._changed.clear()
        self.is_debounced = True

    def _read_all(self, names: Sequence[str]) -> list[Node]:
        for name in names:
            if name not in self._nodes and (node := self._read(name)):
                self._nodes[name] = node
        return [self._nodes[name] for name in names if name in self._nodes]

    def _identity(self, node: Node) -> BackendIdentity:
        addresses = sorted(
            (str(entry.get("type")), str(entry.get("address")))
            for entry in node.addresses[:MOST_ADDRESSES]
        )
        chosen = sorted(item for item in node.labels.items() if item[0] in self._labels)
        is_off = self._minds_power and node.is_shut_down
        # As text: thousands of sets of pairs take ten times as much. Each Service keeps those that
        # it has been given: of addresses a kubelet may write a megabyte.
        return node.name, node.provider_id, hash(repr(addresses)), repr(chosen), is_off
