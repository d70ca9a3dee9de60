"""Performing what is planned, one action at a time and one key a network."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import assert_never
from weakref import WeakValueDictionary

from ccm import metrics
from ccm.errors import CloudError
from ccm.model.node import Node
from ccm.model.objects import mapping
from workers.controller import ControllerContext
from workers.route.cloud import CloudRoutes
from workers.route.listing import Listing
from workers.route.networks import Network
from workers.route.patches import patch_for
from workers.route.plan import Action, AddRoute, DropRoute, Picture, SetCondition
from workers.route.table import Known

log = logging.getLogger(__name__)

Setbacks = dict[Network, CloudError]


class Steps:
    """Acts on the cloud and the Nodes, and keeps `picture` as these then are.

    `refused` are Nodes without room for their routes, in the order in which they were refused: each
    deletion is an occasion for the first of them.
    """

    def __init__(
        self, context: ControllerContext, cloud: CloudRoutes, listing: Listing, picture: Picture
    ) -> None:
        self._context, self._cloud, self._listing = context, cloud, listing
        self.picture = picture
        self.refused: dict[str, None] = {}
        self.created = self.deleted = 0
        self._locks: WeakValueDictionary[Network, asyncio.Lock] = WeakValueDictionary()

    async def work_off(
        self, key: str, planned: Callable[[], Iterator[Action]], setbacks: Setbacks
    ) -> bool:
        """Perform action after action, each planned on what is then there; failures are `setbacks`.

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
                if action == next(planned(), None):  # nobody else did it meanwhile
                    await self._change(key, action, setbacks)
                    done.add(action)
        return True

    def _is_covered(self, key: str, known: Known) -> bool:
        return known.is_listed and self._listing.covers(key, known.route.node)

    async def _change(self, key: str, action: AddRoute | DropRoute, setbacks: Setbacks) -> None:
        try:
            match action:
                case AddRoute(network):
                    await self._create(key, network)
                case DropRoute(known, why):
                    await self._delete(known, why)
                case _:
                    assert_never(action)
        except CloudError as error:
            setbacks[action.network] = error

    async def _create(self, name: str, network: Network) -> None:
        claim = self.picture.roster.get(name)
        if claim is None:
            return
        await self._cloud.create(claim.node, str(network))
        self.picture.table.created(name, network)
        self.created += 1
        self._context.counters.count(metrics.ROUTES_CREATED)
        log.info("route created", extra={"node": name, "cidr": str(network)})

    async def _delete(self, known: Known, why: str) -> None:
        await self._cloud.delete(known.route)
        self.picture.table.deleted(known)
        self.deleted += 1
        self._context.counters.count(metrics.ROUTES_DELETED)
        status = {"route": known.route.id, "cidr": known.route.cidr, "node": known.route.node}
        log.info("route deleted", extra={**status, "why": why})
        if first := next(iter(self.refused), None):
            del self.refused[first]
            self._context.queue.add(first)

    async def _set_condition(self, name: str, action: SetCondition) -> None:
        claim = self.picture.roster.get(name)
        if claim is None:
            return
        write = patch_for(claim.node, action, datetime.now(UTC))
        answer = await self._context.performer.perform(write)
        self._context.store.wrote("Node", name, answer)
        self._remember_condition(name)

    def _remember_condition(self, name: str) -> None:
        """Nothing else of the answer is taken up here: that comes with the feed, as a change."""
        claim, stored = self.picture.roster.get(name), self._context.store.get("Node", name)
        if claim and stored:
            seen = mapping(claim.node.raw.get("status"))
            conditions = mapping(stored.get("status")).get("conditions")
            status = {**seen, "conditions": conditions}
            self.picture.roster.put(Node({**claim.node.raw, "status": status}))
