"""The route duty: what it wants, and its three kinds of keys: a Node, a lost route, all routes."""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ccm import metrics
from ccm.bus.frames import Message
from ccm.cloud.interface import Routes
from ccm.errors import CloudError, Refused, RetryAfter
from ccm.kube.events import Event, ObjectRef
from ccm.model.node import Node
from ccm.model.objects import Json
from ccm.model.projection import Projection
from ccm.settings import Settings
from workers.controller import Controller, ControllerContext, Result
from workers.queue import RETRY
from workers.route.cloud import CloudRoutes
from workers.route.listing import Listing
from workers.route.networks import Network, read_network
from workers.route.plan import (
    CONDITION,
    Action,
    Picture,
    is_missing,
    plan,
    plan_orphans,
    problems,
)
from workers.route.roster import Claim
from workers.route.steps import Setbacks, Steps

log = logging.getLogger(__name__)

COMPONENT = "route_controller"
ALL = "all routes"  # the key of the full pass; no Node can be named so
LOST = "route "  # what the key of routes without a Node begins with
IN_HAND = 200  # keys at the same time (upstream's number); the budget paces the cloud calls

BACKOFF = RETRY

PROJECTIONS = (
    Projection(
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


def new_controller(context: ControllerContext) -> Controller | None:
    """The route duty of this process."""
    settings, part = context.settings, context.provider.routes
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
        return RouteController(context, part)
    return None


def concurrency(settings: Settings) -> int:
    return IN_HAND


class RouteController:
    """Gives every Node its routes, and takes those away that lead nowhere.

    A route is added on what is known; before anything is deleted, all routes are listed again (see
    `Listing`).
    """

    def __init__(self, context: ControllerContext, part: Routes) -> None:
        self._context = context
        self._cloud = CloudRoutes(part, context.performer.permission)
        self._listing = Listing(lambda seconds: context.queue.add_after(ALL, seconds))
        given = map(read_network, context.settings.cluster_cidr)
        cluster = tuple(network for network in given if network is not None)
        picture = Picture(context.provider.scheme, cluster)
        self._steps = Steps(context, self._cloud, self._listing, picture)

    @property
    def _picture(self) -> Picture:
        return self._steps.picture

    def map_to_keys(self, kind: str, key: str) -> Iterable[str]:
        """The Node, and those that claimed or now claim a part of its networks, too.

        Nothing when it is what we know already: that is the echo of our own write. When it is gone,
        or another one under the same name, only a list tells what routes there are and where they
        lead: one may have been made without an answer, and the machine may be another one.
        """
        roster = self._picture.roster
        raw = self._context.store.get(kind, key)
        before, node = roster.get(key), Node(raw) if raw is not None else None
        if before and node and before.node == node:
            return ()
        after = roster.put(node) if node else None
        if not node:
            roster.remove(key)
        self._listing.changed(key)
        if before and (node is None or node.uid != before.node.uid):
            self._picture.table.disown(key)
            self._listing.ask()
        if before and after and before.networks == after.networks:
            return (key,)
        return (key, *sorted(self._rivals(before) | self._rivals(after)))

    async def run(self) -> None:
        """Ask for a full pass once in a period."""
        while True:
            self._listing.ask()
            await asyncio.sleep(self._context.settings.route_reconciliation_period)

    def on_message(self, message: Message) -> None:
        return

    def object_ref(self, key: str) -> ObjectRef | None:
        claim = self._picture.roster.get(key)
        return _object_ref(claim.node) if claim else None

    def status(self) -> Json:
        listing, steps = self._listing, self._steps
        return {
            "objects": len(self._picture.roster),
            "routes": len(self._picture.table),
            "unreadable_routes": self._picture.table.unreadable,
            "list_age_seconds": round(listing.age, 1) if listing.is_done else None,
            "created": steps.created,
            "deleted": steps.deleted,
            "refused": len(steps.refused),
        }

    def details(self, key: str) -> Json:
        claim, listing = self._picture.roster.get(key), self._listing
        if claim is None:
            return {"node": "there is none"}
        routes = sorted(str(known.network) for known in self._picture.table.to(key))
        return {
            "pod networks": ", ".join(map(str, claim.networks)) or "none",
            "unreadable pod CIDRs": ", ".join(claim.unreadable) or "none",
            "routes to it": ", ".join(routes) or "none",
            "list of routes": f"{listing.age:.0f} s old" if listing.is_done else "none yet",
        }

    async def reconcile(self, key: str) -> Result:
        if key == ALL:
            return await self._compare_all()
        network = read_network(key.removeprefix(LOST)) if key.startswith(LOST) else None
        if network:
            return await self._free(key, network)
        claim = self._picture.roster.get(key)
        return await self._serve(claim) if claim else self._leave(key)

    async def _compare_all(self) -> Result:
        """List the cloud's routes and queue every key that has something to do."""
        nodes = [claim.node for claim in self._picture.roster]
        if not nodes:
            self._listing.give_up()
            return Result("no node is known, so nothing is compared")
        self._listing.begin()
        self._picture.table.begin_listing()
        listed = await self._cloud.list(nodes, is_urgent=self._listing.is_awaited)
        self._context.counters.count(metrics.ROUTE_SYNCS)
        picture = replace(self._picture, table=self._picture.table.relisted(listed))
        self._listing.believe(sum(is_missing(claim, picture) for claim in picture.roster))
        self._steps.picture = picture
        keys = self._listing.end() | set(self._unfinished())
        for key in keys:
            self._context.queue.add(key)
        return Result(f"{len(listed)} routes compared, {len(keys)} keys have something to do")

    def _unfinished(self) -> Iterator[str]:
        for claim in self._picture.roster:
            if any(plan(claim, self._picture, {})):
                yield claim.node.name
        for network in {known.network for known in self._picture.table}:
            if any(plan_orphans(network, self._picture, {})):
                yield f"{LOST}{network}"

    async def _serve(self, claim: Claim) -> Result:
        """Give a Node its routes and its condition; tell people why it cannot be."""
        node = claim.node
        if node.is_foreign(self._picture.scheme):
            return Result(f"left alone: {node.provider_id} is not ours")
        if not node.provider_id:
            return Result("waits for its provider ID", is_done=not claim.networks)
        if not self._listing.is_done:
            self._listing.ask(node.name)
            return Result("waits for the first list of routes", is_done=False)
        self._steps.refused.pop(node.name, None)
        setbacks: Setbacks = {}

        def planned() -> Iterator[Action]:
            now = self._picture.roster.get(node.name)
            return plan(now, self._picture, setbacks) if now else iter(())

        if not await self._steps.work_off(node.name, planned, setbacks):
            return Result("waits for a list that is newer than the change", is_done=False)
        return self._conclude(self._picture.roster.get(node.name) or claim, setbacks)

    def _conclude(self, claim: Claim, setbacks: Setbacks) -> Result:
        """Tell people what this Node lacks, and raise what went wrong."""
        causes = problems(claim, self._picture, setbacks)
        for cidr, cause in causes.items():
            self._tell(claim.node, cidr, cause)
        if any(isinstance(setback, Refused) for setback in setbacks.values()):
            self._steps.refused[claim.node.name] = None
        _raise_worst(setbacks)
        told = "; ".join(f"{cidr}: {cause}" for cidr, cause in causes.items())
        return Result(told or "routed", is_done=not causes)

    def _leave(self, name: str) -> Result:
        """A Node is gone: its routes are found to be lost by the next list."""
        self._steps.refused.pop(name, None)
        return Result("it is gone")

    async def _free(self, key: str, network: Network) -> Result:
        """Delete the routes to a network that lead nowhere."""
        setbacks: Setbacks = {}
        is_through = await self._steps.work_off(
            key, lambda: plan_orphans(network, self._picture, setbacks), setbacks
        )
        _raise_worst(setbacks)
        return Result("nothing lost on it" if is_through else "waits for a newer list", is_through)

    def _rivals(self, claim: Claim | None) -> set[str]:
        if claim is None:
            return set()
        rivals = self._picture.roster.rivals
        return {name for network in claim.networks for name in rivals(claim, network)}

    def _tell(self, node: Node, cidr: str, cause: str) -> None:
        message = f"Could not create route {node.uid} {cidr} for node {node.name}: {cause}"
        self._context.recorder.record(
            Event(_object_ref(node), "Warning", "FailedToCreateRoute", message)
        )


def _object_ref(node: Node) -> ObjectRef:
    return ObjectRef("v1", "Node", node.name, node.uid)


def _raise_worst(setbacks: Setbacks) -> None:
    """Raise what is tried again soonest: an error with its back-off, a wait, then a refusal."""

    def patience(error: CloudError) -> int:
        return 2 if isinstance(error, Refused) else 1 if isinstance(error, RetryAfter) else 0

    if setbacks:
        raise min(setbacks.values(), key=patience)
