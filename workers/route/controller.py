"""The route controller; its keys are a Node, a network without a Node, and the full pass."""

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from ccm import metrics
from ccm.bus.frames import CompareRoutes, Message
from ccm.cloud.interface import Routes
from ccm.errors import CloudError, Refused, RetryAfter
from ccm.kube.events import Event, ObjectRef
from ccm.model.cloud import Network, read_network
from ccm.model.objects import NODE_IDENTITY_PATHS, Json, Node, Projection
from ccm.settings import Settings
from workers.controller import Controller, ControllerContext, NotNeeded, Result
from workers.machines import FOREIGN, NodeMachines
from workers.queue import RETRY
from workers.route.listing import Listing
from workers.route.plan import (
    CONDITION,
    Action,
    RouteState,
    SetCondition,
    is_missing,
    plan,
    plan_orphans,
    problems,
)
from workers.route.pod_cidrs import (
    PodCidrIndex,
    PodCidrLimits,
    PodCidrs,
)
from workers.route.steps import ORPHAN, Failures, Steps, orphan_key
from workers.store import DUPLICATE

log = logging.getLogger(__name__)

COMPONENT = "route_controller"
FULL_PASS = "all routes"  # the key of the full pass; no Node can be named so
CONCURRENT_KEYS = 200  # at the same time (upstream's number); the budget paces the cloud calls

BACKOFF = RETRY

PROJECTIONS = (
    Projection(
        "Node",
        (
            *NODE_IDENTITY_PATHS,
            ("spec", "podCIDR"),
            ("spec", "podCIDRs"),
            ("status", "addresses"),
            ("status", "conditions", ("type", CONDITION)),
        ),
    ),
)


def new_controller(context: ControllerContext) -> Controller:
    """The route controller of this process."""
    settings, part = context.settings, context.provider.routes
    if not settings.configure_cloud_routes:
        raise NotNeeded("--configure-cloud-routes is false")
    if part is None:
        raise NotNeeded("the provider has no routes")
    if not settings.cluster_cidr:
        raise NotNeeded(
            "without --cluster-cidr our routes cannot be distinguished from others; "
            "give it, or set --configure-cloud-routes=false"
        )
    return RouteController(context, part)


def concurrency(settings: Settings) -> int:
    """How many keys are reconciled at the same time, as upstream."""
    return CONCURRENT_KEYS


class RouteController:
    """Gives every Node its routes, and takes those away that lead nowhere.

    A route is added on what is known; before anything is deleted, all routes are listed again (see
    `Listing`).
    """

    def __init__(self, context: ControllerContext, part: Routes) -> None:
        self._context = context
        self._listing = Listing(
            lambda seconds: context.queue.add_after(FULL_PASS, seconds), context.timings
        )
        cidrs = PodCidrIndex(_limits(context.settings))
        self._machines = NodeMachines(context, self._on_verdict)
        state = RouteState(context.provider.provider_ids, cidrs, self._machines.why_not)
        self._steps = Steps(context, part, self._listing, state)

    @property
    def _state(self) -> RouteState:
        return self._steps.state

    def map_to_keys(self, kind: str, key: str) -> Iterable[str]:
        """The Node, and those that claimed or now claim a part of its networks, too.

        Nothing when it is what we know already: that is the echo of our own write. When it is gone,
        or another one under the same name, only a list shows what routes there are and where they
        lead: one may have been made without an answer, and the machine may be another one.
        """
        pod_cidrs = self._state.pod_cidrs
        before, node = pod_cidrs.get(key), self._context.store.view(Node, key)
        usual = pod_cidrs.usual_lengths()
        if before and node and before.node == node:
            return ()
        after = pod_cidrs.put(node) if node else None
        if not node:
            pod_cidrs.remove(key)
        self._steps.unwritten.discard(key)
        others = self._machines.update(key, node)
        for name in (key, *others):  # a list from before says nothing of their routes
            self._listing.changed(name)
        if others:
            self._listing.ask()  # where the routes of these lead may be otherwise now
        if before and (node is None or node.uid != before.node.uid):
            self._state.table.disown(key)
            self._listing.ask()
        kept = after.networks if after else ()
        for network in {*(before.networks if before else ())}.difference(kept):
            self._listing.changed(orphan_key(network))
        if usual and usual != pod_cidrs.usual_lengths():
            self._listing.ask()  # others may have lost or won a network: the full pass finds them
        are_same = before and after and before.networks == after.networks
        if are_same or not self._listing.is_done:  # the first list finds all that has to be done
            return (key, *sorted(others))
        return (key, *sorted(others | self._overlapping(before) | self._overlapping(after)))

    async def run(self) -> None:
        """Ask for a full pass once in a period."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._machines.run())
            while True:
                self._listing.ask()
                await asyncio.sleep(self._context.settings.route_reconciliation_period)

    def _on_verdict(self, names: Collection[str]) -> None:
        for name in names:
            self._listing.changed(name)
            self._context.queue.add(name)
        if names:
            self._listing.ask()  # where the routes of these lead may be otherwise now

    def on_message(self, message: Message) -> None:
        if isinstance(message, CompareRoutes):
            self._listing.ask()

    def object_ref(self, key: str) -> ObjectRef | None:
        cidrs = self._state.pod_cidrs.get(key)
        return ObjectRef.of(cidrs.node) if cidrs else None

    def status(self) -> Json:
        listing, steps = self._listing, self._steps
        return {
            "objects": len(self._state.pod_cidrs),
            "routes": len(self._state.table),
            "unreadable_routes": self._state.table.unreadable,
            "list_age_seconds": round(listing.age, 1) if listing.is_done else None,
            "created": steps.created,
            "deleted": steps.deleted,
            "refused": len(steps.refused),
        }

    def details(self, key: str) -> Json:
        cidrs, listing = self._state.pod_cidrs.get(key), self._listing
        if cidrs is None:
            return {"node": "not found"}
        routes = sorted(str(known.network) for known in self._state.table.to(key))
        refused = (*cidrs.unreadable, *map(str, cidrs.refused))
        return {
            "pod networks": ", ".join(map(str, cidrs.networks)) or "none",
            "refused pod CIDRs": ", ".join(refused) or "none",
            "routes to it": ", ".join(routes) or "none",
            "list of routes": f"{listing.age:.0f} s old" if listing.is_done else "none yet",
        }

    async def reconcile(self, key: str) -> Result:
        if key == FULL_PASS:
            return await self._compare_all()
        network = read_network(key.removeprefix(ORPHAN)) if key.startswith(ORPHAN) else None
        if network:
            return await self._free(key, network)
        cidrs = self._state.pod_cidrs.get(key)
        return await self._reconcile_node(cidrs) if cidrs else self._on_node_deleted(key)

    async def _compare_all(self) -> Result:
        """List the cloud's routes and queue every key that has something to do."""
        await self._machines.known()
        against = self._machines.known_against  # no route goes for want of an answer
        nodes = [each.node for each in self._state.pod_cidrs if not against(each.node.name)]
        if not nodes:
            self._listing.give_up()
            return Result("no node is known, so nothing is compared")
        self._listing.begin()
        self._state.table.begin_listing()
        try:
            listed = await self._steps.list_routes(nodes, is_urgent=self._listing.is_awaited)
        except CloudError:
            self._context.counters.count(metrics.ROUTE_SYNCS, "error", "periodic")
            raise
        former = self._state.table if self._listing.is_done else None
        state = replace(self._state, table=self._state.table.relisted(listed))
        missing = (is_missing(cidrs, state, former) for cidrs in state.pod_cidrs)
        self._listing.verify_complete(sum(missing))
        self._steps.state = state
        unfinished = set(self._unfinished())
        outcome = "changed" if unfinished else "noop"
        self._context.counters.count(metrics.ROUTE_SYNCS, outcome, "periodic")
        keys = self._listing.end() | unfinished
        for key in keys:
            self._context.queue.add(key)
        return Result(f"{len(listed)} routes compared, {len(keys)} keys have something to do")

    def _unfinished(self) -> Iterator[str]:
        for cidrs in self._state.pod_cidrs:
            name, actions = cidrs.node.name, plan(cidrs, self._state, {})
            if name in self._steps.unwritten:
                actions = (action for action in actions if not isinstance(action, SetCondition))
            if any(actions):
                yield name
        for network in {known.network for known in self._state.table}:
            if any(plan_orphans(network, self._state, {})):
                yield orphan_key(network)

    async def _reconcile_node(self, cidrs: PodCidrs) -> Result:
        """Give a Node its routes and its condition; record an Event when that fails."""
        node = cidrs.node
        if node.is_foreign(self._state.provider_ids):
            return Result(f"left alone: {node.provider_id} is not ours")
        await self._machines.known(node.name)
        if message := self._machines.why_not(node.name):
            reason = DUPLICATE if self._machines.is_duplicate(node.name) else FOREIGN
            self._context.recorder.record(Event(ObjectRef.of(node), "Warning", reason, message))
            return Result(message, is_done=False)
        if not node.provider_id:
            return Result("waits for its provider ID", is_done=cidrs.is_empty)
        if not self._listing.is_done:
            self._listing.ask(node.name)
            return Result("waits for the first list of routes", is_done=False)
        self._steps.refused.pop(node.name, None)
        failures: Failures = {}

        def planned() -> Iterator[Action]:
            now = self._state.pod_cidrs.get(node.name)
            return plan(now, self._state, failures) if now else iter(())

        if not await self._steps.run_until_done(node.name, planned, failures):
            return Result("waits for a list that is newer than the change", is_done=False)
        return self._conclude(self._state.pod_cidrs.get(node.name) or cidrs, failures)

    def _conclude(self, cidrs: PodCidrs, failures: Failures) -> Result:
        """Record what this Node lacks, and raise what went wrong."""
        causes = problems(cidrs, self._state, failures)
        for cidr, cause in causes.items():
            self._record(cidrs.node, cidr, cause)
        if any(isinstance(failure, Refused) for failure in failures.values()):
            self._steps.refused[cidrs.node.name] = None
        _raise_worst(failures)
        reported = "; ".join(f"{cidr}: {cause}" for cidr, cause in causes.items())
        return Result(reported or "routed", is_done=not causes)

    def _on_node_deleted(self, name: str) -> Result:
        """A Node is gone: its routes are found to be lost by the next list."""
        self._steps.refused.pop(name, None)
        return Result("it is gone")

    async def _free(self, key: str, network: Network) -> Result:
        """Delete the routes to a network that lead nowhere."""
        failures: Failures = {}
        is_done = await self._steps.run_until_done(
            key, lambda: plan_orphans(network, self._state, failures), failures
        )
        _raise_worst(failures)
        return Result("nothing lost on it" if is_done else "waits for a newer list", is_done)

    def _overlapping(self, cidrs: PodCidrs | None) -> set[str]:
        """Nodes for which these count: a network that is wider than most takes none from others."""
        pod_cidrs, usual = self._state.pod_cidrs, self._state.pod_cidrs.usual_lengths()
        return {
            name
            for network in (cidrs.networks if cidrs else ())
            if cidrs and network.prefixlen >= usual.get(network.version, 0)
            for name in pod_cidrs.overlapping(cidrs, network)
        }

    def _record(self, node: Node, cidr: str, cause: str) -> None:
        message = f"Could not create route {node.uid} {cidr} for node {node.name}: {cause}"
        self._context.recorder.record(
            Event(ObjectRef.of(node), "Warning", "FailedToCreateRoute", message)
        )


def _limits(settings: Settings) -> PodCidrLimits:
    masks = {4: settings.node_cidr_mask_size_ipv4, 6: settings.node_cidr_mask_size_ipv6}
    given = map(read_network, settings.cluster_cidr)
    return PodCidrLimits(tuple(network for network in given if network is not None), masks)


def _raise_worst(failures: Failures) -> None:
    """Raise what is tried again soonest: an error with its back-off, a wait, then a refusal."""

    def patience(error: CloudError) -> int:
        return 2 if isinstance(error, Refused) else 1 if isinstance(error, RetryAfter) else 0

    if failures:
        raise min(failures.values(), key=patience)
