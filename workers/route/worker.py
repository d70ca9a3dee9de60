"""The route duty: what it wants, and its three kinds of keys: a Node, a lost route, all routes."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import assert_never
from weakref import WeakValueDictionary

from ccm.bus.frames import Message
from ccm.cloud.interface import Routes
from ccm.errors import CloudError, Refused, RetryAfter
from ccm.kube.events import Note, ObjectRef
from ccm.model.node import Json, Node
from ccm.model.projection import Want
from ccm.settings import Settings
from workers.duty import Duty, Outcome, Tools
from workers.route.cloud import CloudRoutes
from workers.route.listing import Listing
from workers.route.networks import Network, read_network
from workers.route.patches import patch_for
from workers.route.plan import (
    CONDITION,
    Action,
    AddRoute,
    DropRoute,
    Picture,
    SetCondition,
    is_missing,
    plan,
    plan_orphans,
    problems,
)
from workers.route.roster import Claim
from workers.route.table import Known

log = logging.getLogger(__name__)

COMPONENT = "route_controller"
ALL = "all routes"  # the key of the full pass; no Node can be named so
LOST = "route "  # what the key of routes without a Node begins with
IN_HAND = 200  # keys at the same time (upstream's number); the budget paces the cloud calls

WANTS = (
    Want(
        "Node",
        (
            ("metadata", "name"),
            ("metadata", "uid"),
            ("spec", "podCIDR"),
            ("spec", "podCIDRs"),
            ("spec", "providerID"),
            ("status", "addresses"),
            ("status", "conditions", ("type", CONDITION)),
        ),
    ),
)

Planned = Callable[[], Iterator[Action]]


def duty(tools: Tools) -> Duty | None:
    """The route duty of this process."""
    settings, part = tools.settings, tools.provider.routes
    if not settings.configure_cloud_routes:
        log.info("routes are left alone: --configure-cloud-routes is false")
    elif part is None:
        log.warning("routes are left alone: the provider has none")
    elif not settings.cluster_cidr:
        log.warning(
            "routes are left alone: without --cluster-cidr ours cannot be told from others; "
            "give it, or set --configure-cloud-routes=false"
        )
    else:
        return RouteDuty(tools, part)
    return None


def concurrency(settings: Settings) -> int:
    return IN_HAND


class RouteDuty:
    """Gives every Node its routes, and takes those away that lead nowhere.

    Adding needs no list but the first one. What is to be deleted is first listed again (see
    `Listing`). Work on one network is done by one key at a time.
    """

    def __init__(self, tools: Tools, part: Routes) -> None:
        self._tools = tools
        self._cloud = CloudRoutes(part, tools.performer.permission)
        cluster = filter(None, map(read_network, tools.settings.cluster_cidr))
        self._picture = Picture(tools.provider.scheme, tuple(cluster))
        self._listing = Listing(lambda seconds: tools.queue.add_after(ALL, seconds))
        self._locks: WeakValueDictionary[Network, asyncio.Lock] = WeakValueDictionary()
        self._refused: dict[str, None] = {}  # Nodes, in the order in which they were refused
        self._created = self._deleted = 0

    def keys_for(self, kind: str, key: str) -> Iterable[str]:
        """The Node, and those that claimed or now claim a part of its networks, too.

        Nothing when it is what we know already: that is the echo of our own write.
        """
        roster = self._picture.roster
        before, node = roster.get(key), self._node(key)
        if before and node and before.node == node:
            return ()
        rivals = self._rivals(before)
        if node:
            rivals |= self._rivals(roster.put(node))
        else:
            roster.remove(key)
        self._listing.changed(key)
        return (key, *sorted(rivals))

    async def run(self) -> None:
        """Ask for a full pass once in a period."""
        while True:
            self._listing.ask()
            await asyncio.sleep(self._tools.settings.route_reconciliation_period)

    def hear(self, message: Message) -> None:
        return

    def about(self, key: str) -> ObjectRef | None:
        claim = self._picture.roster.get(key)
        return _about(claim.node) if claim else None

    def facts(self) -> Json:
        listing = self._listing
        return {
            "objects": len(self._picture.roster),
            "routes": len(self._picture.table),
            "unreadable_routes": self._picture.table.unreadable,
            "list_age_seconds": round(listing.age, 1) if listing.is_done else None,
            "created": self._created,
            "deleted": self._deleted,
            "refused": len(self._refused),
        }

    async def reconcile(self, key: str) -> Outcome:
        if key == ALL:
            return await self._compare_all()
        network = read_network(key.removeprefix(LOST)) if key.startswith(LOST) else None
        if network:
            return await self._free(network)
        claim = self._picture.roster.get(key)
        return await self._serve(claim) if claim else self._leave(key)

    # The full pass.

    async def _compare_all(self) -> Outcome:
        """List the cloud's routes and queue every key that has something to do."""
        nodes = [claim.node for claim in self._picture.roster]
        if not nodes:
            self._listing.give_up()
            return Outcome("no node is known, so nothing is compared")
        self._listing.begin()
        self._picture.table.begin_listing()
        listed = await self._cloud.list(nodes, is_urgent=self._listing.is_awaited)
        picture = replace(self._picture, table=self._picture.table.relisted(listed))
        self._listing.believe(sum(is_missing(claim, picture) for claim in picture.roster))
        self._picture = picture
        keys = self._listing.end() | set(self._unfinished())
        for key in keys:
            self._tools.queue.add(key)
        return Outcome(f"{len(listed)} routes compared, {len(keys)} keys have something to do")

    def _unfinished(self) -> Iterator[str]:
        for claim in self._picture.roster:
            if any(plan(claim, self._picture, {})):
                yield claim.node.name
        for network in {known.network for known in self._picture.table}:
            if any(plan_orphans(network, self._picture, {})):
                yield f"{LOST}{network}"

    # One key.

    async def _serve(self, claim: Claim) -> Outcome:
        """Give a Node its routes and its condition; tell people why it cannot be."""
        node = claim.node
        if node.is_foreign(self._picture.scheme):
            return Outcome(f"left alone: {node.provider_id} is not ours")
        if not node.provider_id:
            return Outcome("waits for its provider ID", is_settled=not claim.networks)
        if not self._listing.is_done:
            self._listing.ask(node.name)
            return Outcome("waits for the first list of routes", is_settled=False)
        self._refused.pop(node.name, None)
        setbacks: dict[Network, CloudError] = {}
        is_through = await self._work_off(
            node.name, lambda: self._planned(node.name, setbacks), setbacks
        )
        if not is_through:
            return Outcome("waits for a list that is newer than the change", is_settled=False)
        causes = problems(self._picture.roster.get(node.name) or claim, self._picture, setbacks)
        for cidr, cause in causes.items():
            self._tell(node, cidr, cause)
        if any(isinstance(setback, Refused) for setback in setbacks.values()):
            self._refused[node.name] = None
        _raise_worst(setbacks)
        told = "; ".join(f"{cidr}: {cause}" for cidr, cause in causes.items())
        return Outcome(told or "routed", is_settled=not causes)

    def _leave(self, name: str) -> Outcome:
        """A Node is gone: its routes are found to be lost by the next list."""
        self._refused.pop(name, None)
        if self._picture.table.to(name):
            self._listing.ask()
        return Outcome("it is gone")

    async def _free(self, network: Network) -> Outcome:
        """Delete the routes to a network that lead nowhere."""
        setbacks: dict[Network, CloudError] = {}
        key = f"{LOST}{network}"
        is_through = await self._work_off(
            key, lambda: plan_orphans(network, self._picture, setbacks), setbacks
        )
        _raise_worst(setbacks)
        return Outcome("nothing lost on it" if is_through else "waits for a newer list", is_through)

    # Performing.

    def _planned(self, name: str, setbacks: dict[Network, CloudError]) -> Iterator[Action]:
        claim = self._picture.roster.get(name)
        return plan(claim, self._picture, setbacks) if claim else iter(())

    async def _work_off(
        self, key: str, planned: Planned, setbacks: dict[Network, CloudError]
    ) -> bool:
        """Perform one action after the other, each planned on what is then there.

        False when a deletion has to wait for a newer list, for which `key` then waits.
        """
        done: set[Action] = set()
        while action := next(planned(), None):
            if action in done:
                raise CloudError(f"done, but still to do: {action}")
            if isinstance(action, DropRoute) and not self._is_covered(key, action.known):
                self._listing.ask(key)
                return False
            async with self._turn(action):
                if action == next(planned(), None):
                    done.add(action)
                    await self._perform(key, action, setbacks)
        return True

    def _is_covered(self, key: str, known: Known) -> bool:
        return known.is_listed and self._listing.covers(key, known.route.node)

    def _turn(self, action: Action) -> AbstractAsyncContextManager[object]:
        if isinstance(action, SetCondition):
            return nullcontext()
        return self._locks.setdefault(action.network, asyncio.Lock())

    async def _perform(self, key: str, action: Action, setbacks: dict[Network, CloudError]) -> None:
        try:
            match action:
                case AddRoute(network):
                    await self._create(key, network)
                case DropRoute(known, why):
                    await self._delete(known, why)
                case SetCondition():
                    await self._set_condition(key, action)
                case _:
                    assert_never(action)
        except CloudError as error:
            if not isinstance(action, SetCondition):
                setbacks[action.network] = error

    async def _create(self, name: str, network: Network) -> None:
        claim = self._picture.roster.get(name)
        if claim is None:
            return
        await self._cloud.create(claim.node, str(network))
        self._picture.table.created(name, network)
        self._created += 1
        log.info("route created", extra={"node": name, "cidr": str(network)})

    async def _delete(self, known: Known, why: str) -> None:
        await self._cloud.delete(known.route)
        self._picture.table.deleted(known)
        self._deleted += 1
        facts = {"route": known.route.id, "cidr": known.route.cidr, "node": known.route.node}
        log.info("route deleted", extra={**facts, "why": why})
        if self._refused:  # there is room for one more now
            self._tools.queue.add(next(iter(self._refused)))

    async def _set_condition(self, name: str, action: SetCondition) -> None:
        claim = self._picture.roster.get(name)
        if claim is None:
            return
        write = patch_for(claim.node, action, datetime.now(UTC))
        answer = await self._tools.performer.perform(write)
        self._tools.store.wrote("Node", name, answer)
        if node := self._node(name):
            self._picture.roster.put(node)

    # Looking and telling.

    def _node(self, name: str) -> Node | None:
        raw = self._tools.store.get("Node", name)
        return Node(raw) if raw is not None else None

    def _rivals(self, claim: Claim | None) -> set[str]:
        if claim is None:
            return set()
        networks = claim.networks
        return {name for net in networks for name in self._picture.roster.rivals(claim, net)}

    def _tell(self, node: Node, cidr: str, cause: str) -> None:
        message = f"Could not create route {node.uid} {cidr} for node {node.name}: {cause}"
        note = Note(_about(node), "Warning", "FailedToCreateRoute", message)
        self._tools.recorder.tell(note)


def _about(node: Node) -> ObjectRef:
    return ObjectRef("v1", "Node", node.name, node.uid)


def _raise_worst(setbacks: dict[Network, CloudError]) -> None:
    """Raise what is tried again soonest: an error with its back-off, a wait, then a refusal."""

    def patience(error: CloudError) -> int:
        return 2 if isinstance(error, Refused) else 1 if isinstance(error, RetryAfter) else 0

    if setbacks:
        raise min(setbacks.values(), key=patience)
