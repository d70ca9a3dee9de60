"""The two periodic passes over many nodes: those not Ready, and all that are initialized."""

import asyncio
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from ccm import metrics
from ccm.bus.frames import CompareRoutes, ProposeDeletions
from ccm.cloud.interface import Instances, LooksUp, Read, look_up_of
from ccm.cloud.lookup import batches, in_turns
from ccm.decide.budget import Priority
from ccm.errors import NotLeading
from ccm.model.cloud import Answer, Gone, Instance, Unknown, is_absent
from ccm.model.objects import NODE_IDENTITY, Node
from workers.batch_reader import read_batch
from workers.controller import ControllerContext
from workers.node.plan import CannotPlan, is_refreshed, is_watched, plan_update
from workers.store import Store

TimedAnswers = dict[str, tuple[float, Answer]]
"""Answers by the names of Nodes, each with the monotonic time at which it was asked for."""

REFRESH_STEPS = 20  # of a period: how often a refresh looks how many nodes there are, at least
ROUNDING = 0.01  # of a batch
LEAST_PROVEN, PROVEN_SHARE = 10, 0.01  # called gone before, whose machines a pass proves gone again


class LastGone(NamedTuple):
    """The last pass's answer about a Node whose machine is gone, and since when it has been that;
    monotonic times at which it was asked for.
    """

    name: str
    uid: str
    age_order: tuple[str, str]
    may_be_deleted: bool  # whether Nodes are deleted for such an answer
    since: float
    at: float
    answer: Gone


class MonitorPass:
    """Asks about every node that is not Ready, once a period for all of them together.

    The answers stay until the next pass: a reconcile follows the power state in them. What the
    cloud positively does not have is proposed to the supervisor, which alone permits deletions.
    After a pass with such answers, the last batch of the next one is filled up with Ready Nodes
    that are due for a refresh: a cloud that calls those gone as well is wrong.

    A Node that ceases to be Ready begins the next pass at once, one such pass a period: however
    many do, and however often, at most twice as much is read.

    A proof that a machine is gone may take a call. Of those proven before, the oldest are proven
    again, and those found gone last: so many as may be deleted. The others are looked up alone:
    while they are not found, they are as gone as they were, which is too old to permit anything.
    """

    def __init__(
        self,
        context: ControllerContext,
        instances: Instances,
        watched: Mapping[str, bool],
        refresh: "RefreshPass",
    ) -> None:
        """`watched` is by the names of all Nodes whether a pass is about them."""
        self._context, self._instances = context, instances
        self._watched, self._refresh = watched, refresh
        self._answers: dict[str, tuple[str, Answer]] = {}  # by name, with the UID
        self._gone: dict[tuple[str, ...], LastGone] = {}  # of the last pass, by identity
        self._pause = context.changes.hinted_sleep()
        self._can_run_early = True

    def run_early(self) -> None:
        """Begin the next pass at once, as a Node ceased to be Ready."""
        if self._can_run_early:
            self._can_run_early = False
            self._pause.wake()

    def answer(self, node: Node) -> Answer | None:
        """What the last pass said about this very node, and not about one before of its name."""
        uid, answer = self._answers.get(node.name, ("", None))
        return answer if uid == node.uid else None

    async def run(self) -> None:
        """Pass after pass, while this worker leads."""
        while True:
            was_hinted = await self._pause.sleep(self._context.settings.node_monitor_period)
            self._can_run_early = not was_hinted
            await self._context.performer.permission.wait()
            await self._pass()

    async def _pass(self) -> None:
        began = time.monotonic()
        names = [name for name, has_to in self._watched.items() if has_to]
        ours = self._context.provider.provider_ids
        nodes = await nodes_where(self._context.store, names, lambda it: is_watched(it, ours))
        is_some_gone = any(last.may_be_deleted for last in self._gone.values())
        ready = await self._next_ready(nodes) if is_some_gone else []
        asked = [*nodes, *ready]
        timed = await self._still_about(asked, await self._ask_all(asked))
        self._gone = self._gone_of(asked, timed)
        for node in ready:
            self._refresh.take(node, timed[node.name][1])
        before = self._answers
        self._answers = {node.name: (node.uid, timed[node.name][1]) for node in nodes}
        not_gone = [node.name for node in asked if node.cloud_identity not in self._gone]
        proposed = [
            [last.name, last.uid, last.answer.evidence, last.at, last.answer.is_final]
            for last in self._gone.values()
        ]
        self._context.send(ProposeDeletions(len(asked), proposed, not_gone))
        for name in self._answers.keys() | before.keys():
            if self._answers.get(name) != before.get(name):
                self._context.queue.add(name)
        seconds = time.monotonic() - began
        self._context.counters.observe(metrics.MONITOR_PASS_SECONDS, seconds=seconds)

    async def _next_ready(self, nodes: Sequence[Node]) -> list[Node]:
        """Others that are Ready: as many as fill up the last batch, half of one at least."""
        size, names = self._instances.batch_size, {node.name for node in nodes}
        room = -len(nodes) % size
        others = await self._refresh.next_ready(room if 2 * room >= size else room + size)
        return [node for node in others if node.name not in names]

    async def _ask_all(self, nodes: Sequence[Node]) -> TimedAnswers:
        later = self._later(nodes)
        first = [node for node in nodes if node.name not in later]
        answers = await self._ask_batches(first, self._instances.describe)
        others = [node for node in nodes if node.name in later]
        found = await self._ask_batches(others, look_up_of(self._instances))
        return answers | later | {name: it for name, it in found.items() if not is_absent(it[1])}

    def _later(self, nodes: Sequence[Node]) -> TimedAnswers:
        """What is known of those that are not proven gone again in this pass: first of those that
        are not deleted for it. A kubelet may keep an old Node from being deleted for ever.
        """
        if not isinstance(self._instances, LooksUp):
            return {}
        gone = [self._gone[it.cloud_identity] for it in nodes if it.cloud_identity in self._gone]
        gone.sort(key=lambda last: (not last.may_be_deleted, last.age_order))
        most = max(LEAST_PROVEN, int(PROVEN_SHARE * self._context.store.count(NODE_IDENTITY)))
        newer = sorted(gone[most // 2 :], key=lambda last: (not last.may_be_deleted, -last.since))
        return {last.name: (last.at, last.answer) for last in newer[most - most // 2 :]}

    def _gone_of(
        self, nodes: Sequence[Node], timed: TimedAnswers
    ) -> dict[tuple[str, ...], LastGone]:
        gone = dict[tuple[str, ...], LastGone]()
        for node in nodes:
            at, answer = timed[node.name]
            if isinstance(answer, Gone):
                before = self._gone.get(node.cloud_identity)
                since = before.since if before else at
                may_be_deleted = bool(node.provider_id) and not node.is_ready
                gone[node.cloud_identity] = LastGone(
                    node.name, node.uid, node.age_order, may_be_deleted, since, at, answer
                )
        return gone

    async def _ask_batches(self, nodes: Sequence[Node], read: Read[Node, Answer]) -> TimedAnswers:
        answers: TimedAnswers = {}
        for batch in batches(nodes, self._instances.batch_size):
            asked_at = time.monotonic()  # an answer is at least as new as its question
            found = await self._ask(batch, read)
            answers |= {name: (asked_at, answer) for name, answer in found.items()}
        return answers

    async def _still_about(self, nodes: Sequence[Node], timed: TimedAnswers) -> TimedAnswers:
        """The answers, unknown about a Node that has got a provider ID meanwhile.

        What was asked about was its name; and a list may lack a machine that was just made.
        """
        async for node in in_turns(nodes):
            at, answer = timed[node.name]
            now = self._context.store.view(Node, node.name) if isinstance(answer, Gone) else None
            if now and now.cloud_identity != node.cloud_identity:
                timed[node.name] = at, Unknown("it changed while the cloud was asked")
        return timed

    async def _ask(self, batch: Sequence[Node], read: Read[Node, Answer]) -> dict[str, Answer]:
        try:
            answers = await read_batch(self._context.executor, read, batch, Priority.REFRESH)
        except NotLeading as error:
            return {node.name: Unknown(str(error)) for node in batch}
        known = [each for each in (answers or {}).values() if not isinstance(each, Unknown)]
        result = "success" if known else "error"
        self._context.counters.count(metrics.MONITOR_CALLS, "instance_exists", result)
        return answers or {node.name: Unknown("throttled") for node in batch}


class RefreshPass:
    """Asks about every initialized node once a period, one batch after the other, evenly spread.

    A node that is what its machine is costs nothing more; the others get a reconcile, which takes
    the answer from here, and so does a Ready node whose machine the cloud does not have. A start
    begins with a pause: restarts of workers must not add up to reads.
    """

    def __init__(
        self, context: ControllerContext, instances: Instances, refreshed: dict[str, None]
    ) -> None:
        """`refreshed` has the names of the Nodes, first the one asked about longest ago."""
        self._context, self._instances, self._refreshed = context, instances, refreshed
        self._answers: dict[str, tuple[str, Instance | Gone]] = {}
        self.passes = 0  # how often all nodes were asked about since the start

    def answer(self, node: Node) -> Instance | Gone | None:
        """What this node has to become, until `forget`; or why it has no machine."""
        uid, answer = self._answers.get(node.name, ("", None))
        return answer if uid == node.uid else None

    def forget(self, name: str) -> None:
        """The node is what it has to be, or cannot become it."""
        self._answers.pop(name, None)

    async def next_ready(self, count: int) -> list[Node]:
        """Ready Nodes that another pass asks about: those called gone, then those due next."""
        gone = {name for name, (_, answer) in self._answers.items() if isinstance(answer, Gone)}
        others = (name for name in self._refreshed if name not in gone)
        names = [*islice(gone & self._refreshed.keys(), count)]
        names += islice(others, count - len(names))
        self._move_last(names)
        return await nodes_where(
            self._context.store, names, lambda node: node.is_ready and self._is_due(node)
        )

    async def run(self) -> None:
        """Pass after pass, while this worker leads; a hint of the cloud asks about all at once."""
        hinted = self._context.changes.hinted_sleep()
        period = self._context.settings.node_status_update_frequency
        batches_due, asked = 0.0, 0
        while True:
            size = max(1, math.ceil(len(self._refreshed) / self._instances.batch_size))
            pause = period / max(size, REFRESH_STEPS)
            is_hinted = await hinted.sleep(pause)
            batches_due = float(size) if is_hinted else batches_due + size * pause / period
            while batches_due > 1 - ROUNDING:
                batches_due -= 1
                asked += await self._ask_next(len(self._refreshed) - asked)
                if asked >= len(self._refreshed):
                    self.passes, asked = self.passes + 1, 0

    def _is_due(self, node: Node) -> bool:
        return is_refreshed(node, self._context.provider.provider_ids)

    async def _ask_next(self, left: int) -> int:
        """Ask about the next batch, of those left in this pass; returns how many nodes it has."""
        names = list(islice(self._refreshed, max(0, min(left, self._instances.batch_size))))
        self._move_last(names)
        nodes = await nodes_where(self._context.store, names, self._is_due)
        answers = await self._answers_for(nodes) if nodes else {}
        for node in nodes:
            self.take(node, answers[node.name])
        return len(names)

    def _move_last(self, names: Iterable[str]) -> None:
        """They are now those asked about most recently."""
        for name in names:
            self._refreshed[name] = self._refreshed.pop(name)

    def take(self, node: Node, answer: Answer) -> None:
        """Keep an answer that a reconcile has to act upon, and drop one that is out of date."""
        before = self._answers.pop(node.name, None)
        match answer:
            case Instance() if self._differs(node, answer):
                self._answers[node.name] = node.uid, answer
            case Gone() if node.is_ready:
                if not before:
                    self._context.send(CompareRoutes())
                self._answers[node.name] = node.uid, answer
        if before or node.name in self._answers:
            self._context.queue.add(node.name)

    async def _answers_for(self, nodes: Sequence[Node]) -> dict[str, Answer]:
        executor, read = self._context.executor, self._instances.describe
        while True:
            await self._context.performer.permission.wait()
            try:
                answers = await read_batch(executor, read, nodes, Priority.REFRESH)
            except NotLeading:
                continue
            if answers is not None:
                return answers
            await asyncio.sleep(self._context.timings.throttled_refresh_retry)

    def _differs(self, node: Node, instance: Instance) -> bool:
        try:
            return any(plan_update(node, instance, self._context.settings.prefer_beta_labels))
        except CannotPlan:
            return True  # a reconcile records the Event


async def nodes_where(
    store: Store, names: Collection[str], is_wanted: Callable[[Node], bool]
) -> list[Node]:
    """The nodes of these names for which the condition holds, in order; lets other tasks run.

    To read one with thousands of labels, taints and addresses takes milliseconds.
    """
    found: list[Node] = []
    async for name in in_turns(sorted(names)):
        node = store.view(Node, name)
        if node and is_wanted(node):
            found.append(node)
    return found
