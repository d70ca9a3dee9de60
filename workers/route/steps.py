"""Performing what is planned: one action at a time, and one key a network."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import assert_never
from urllib.parse import quote
from weakref import WeakValueDictionary

from ccm import metrics
from ccm.cloud.gate import call
from ccm.cloud.interface import Routes
from ccm.cloud.lookup import verify_count
from ccm.decide.budget import Allowances, Priority
from ccm.errors import CloudError, KubernetesError, Refused, RetryAfter
from ccm.log import performing
from ccm.model.cloud import Network, Route
from ccm.model.objects import Json, Node, format_time, mapping
from ccm.model.writes import Merge, is_metadata_only
from workers.controller import ControllerContext
from workers.route.listing import Listing
from workers.route.plan import (
    CONDITION,
    CREATED,
    NOT_CREATED,
    Action,
    AddRoute,
    DropRoute,
    RouteState,
    SetCondition,
    condition_of,
)
from workers.route.table import KnownRoute

log = logging.getLogger(__name__)

CALLS, CALL_PAUSE = 10, 5.0
"""So many routes are created for a Node at once, then one in so many seconds: what the cloud
refuses, it refuses again, and a kubelet changes its Node as often as it likes."""
MOST_NODES = 10_000  # whose calls are counted
MOST_ROUTES = 15_000  # of a list: three of each of 5,000 Nodes; they are compared in one turn
ORPHAN = "route "  # what the key of routes without a Node begins with
Failures = dict[Network, CloudError]


def orphan_key(network: Network) -> str:
    """The key of the routes to a network that no Node has."""
    return f"{ORPHAN}{network}"


class Steps:
    """Acts on the cloud and the Nodes, and keeps `state` as these then are.

    `refused` are Nodes without room for their routes, in the order in which they were refused: each
    deletion is an occasion for the first of them. `unwritten` are those whose condition the API
    server refuses: its own back-off tries that again, no full pass.
    """

    def __init__(
        self, context: ControllerContext, part: Routes, listing: Listing, state: RouteState
    ) -> None:
        self._context, self._part, self._listing = context, part, listing
        self.state = state
        self.refused: dict[str, None] = {}
        self.unwritten: set[str] = set()
        self.created = self.deleted = 0
        self._allowances = Allowances[str](CALLS, CALL_PAUSE, MOST_NODES)
        self._locks: WeakValueDictionary[Network, asyncio.Lock] = WeakValueDictionary()

    async def list_routes(self, nodes: Sequence[Node], is_urgent: bool) -> Sequence[Route]:
        """All routes of this cluster; urgent when a Node waits for it. It is never given up."""
        priority = Priority.ROUTE if is_urgent else Priority.REFRESH
        try:
            listed: Sequence[Route] = await call(priority, self._part.list, nodes)
        except Refused as error:
            raise CloudError(str(error)) from error
        verify_count("the routes", len(listed), MOST_ROUTES)
        return listed

    async def run_until_done(
        self, key: str, planned: Callable[[], Iterator[Action]], failures: Failures
    ) -> bool:
        """Perform action after action, each planned on what is then there; failures are `failures`.

        False when a deletion has to wait for a newer list, for which `key` then waits.
        """
        done: set[Action] = set()
        while action := next(planned(), None):
            if action in done:
                raise CloudError(f"done, but still to do: {action}")
            if isinstance(action, SetCondition):
                await self._set_condition(key, action)
                done.add(action)
                continue
            if isinstance(action, DropRoute) and not self._is_covered(key, action.known):
                self._listing.ask(key)
                return False
            async with self._locks.setdefault(action.network, asyncio.Lock()):
                if action == next(planned(), None):  # nothing else did it meanwhile
                    await self._change(key, action, failures)
                    done.add(action)
        return True

    def _is_covered(self, key: str, known: KnownRoute) -> bool:
        """Whether a list that is new enough has it.

        To a Node's own network the Node alone counts: whatever the list says of where the route
        leads, it is not to this one. To one that no Node has, the last that had it does. The
        kubelet of the Node to which it leads may change that for ever.
        """
        names = {it.node.name for it in self.state.pod_cidrs.nodes_with(known.network)}
        other = known.route.node if names else orphan_key(known.network)
        return known.is_listed and self._listing.covers(key if key in names else other)

    async def _change(self, key: str, action: AddRoute | DropRoute, failures: Failures) -> None:
        try:
            match action:
                case AddRoute(network):
                    await self._create(key, network)
                case DropRoute(known, why):
                    await self._delete(known, why)
                case _:
                    assert_never(action)
        except CloudError as error:
            failures[action.network] = error

    async def _create(self, name: str, network: Network) -> None:
        cidrs = self.state.pod_cidrs.get(name)
        if cidrs is None:
            return
        if pause := self._allowances.take(name, time.monotonic()):
            raise RetryAfter("it changes again and again: the cloud is asked later", pause)
        with performing(log, "route created", node=name, cidr=str(network)):
            await call(Priority.ROUTE, self._part.create, cidrs.node, str(network))
        self.state.table.created(name, network)
        self.created += 1
        self._context.counters.count(metrics.ROUTES_CREATED)

    async def _delete(self, known: KnownRoute, why: str) -> None:
        route = {"route": known.route.id, "cidr": known.route.cidr, "node": known.route.node}
        with performing(log, "route deleted", **route, why=why):
            await call(Priority.ROUTE, self._part.delete, known.route)
        self.state.table.deleted(known)
        self.deleted += 1
        self._context.counters.count(metrics.ROUTES_DELETED)
        if first := next(iter(self.refused), None):
            del self.refused[first]
            self._context.queue.add(first)

    async def _set_condition(self, name: str, action: SetCondition) -> None:
        cidrs = self.state.pod_cidrs.get(name)
        if cidrs is None:
            return
        write = patch_for(cidrs.node, action, datetime.now(UTC))
        try:
            known = self._context.store.version("Node", name)
            answer = await self._context.performer.perform(write, since=known)
        except KubernetesError as error:
            if error.is_refusal:
                self.unwritten.add(name)
            raise
        self.unwritten.discard(name)
        self._remember_condition(name, write, answer)

    def _remember_condition(self, name: str, write: Merge, answer: Json) -> None:
        """Nothing else of the answer is taken up here: that comes as a change from the informer."""
        store = self._context.store
        if known := store.get("Node", name):
            store.wrote("Node", name, written(known, write, answer))
        cidrs, stored = self.state.pod_cidrs.get(name), store.get("Node", name)
        if cidrs and stored:
            seen = mapping(cidrs.node.raw.get("status"))
            conditions = mapping(stored.get("status")).get("conditions")
            status = {**seen, "conditions": conditions}
            self.state.pod_cidrs.put(Node({**cidrs.node.raw, "status": status}))


def patch_for(node: Node, action: SetCondition, now: datetime) -> Merge:
    """The write for `action`; it is refused when the Node is another one by now."""
    written: Json = {
        "type": CONDITION,
        "status": "True" if action.is_unavailable else "False",
        "reason": NOT_CREATED if action.is_unavailable else CREATED,
        "message": action.message,
        "lastHeartbeatTime": format_time(now),
    }
    if action.is_turn:
        written["lastTransitionTime"] = format_time(now)
    body: Json = {"metadata": {"uid": node.uid}, "status": {"conditions": [written]}}
    return Merge(f"/api/v1/nodes/{quote(node.name)}/status", body)


def written(seen: Json, write: Merge, answer: Json) -> Json:
    """The Node with its condition after `write`; what else changed meanwhile is still to come."""
    if not is_metadata_only(answer):
        return answer
    [condition] = write.body["status"]["conditions"]
    status = {"conditions": [{**condition_of(Node(seen)), **condition}]}
    return {**seen, **answer, "status": {**mapping(seen.get("status")), **status}}
