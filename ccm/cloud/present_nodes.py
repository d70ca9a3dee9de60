"""Writes for nodes of which some have no machine any more: those are left out for a while."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from ccm.cloud.gate import invoke
from ccm.cloud.interface import Instances, Read, look_up_of
from ccm.cloud.newest import Newest
from ccm.cloud.shared_read import SharedLock
from ccm.decide.deletion import PLAUSIBLE_LOSS
from ccm.errors import CloudError, Conflict, LeftOut, NoRoom, NotFound, Refused, RetryAfter
from ccm.model.cloud import Answer, Balancer, is_absent
from ccm.model.objects import Node

T = TypeVar("T")

ABSENT_TRUSTED = 60.0  # seconds in which a node without a machine is left out
ABSENT_AWAITED = 900.0  # seconds in which it is expected back
LEFT_OUT = "nodes without a machine, by what the cloud reports, are left out"
TURN_ATTEMPTS = 5  # writes of one Service while machines end, before it is another one's turn
TURN_WAIT = 60.0  # seconds
ENDING = 10.0  # seconds since a machine was first found to have ended in which others may as well


class _RefusedWrite(Exception):
    """The cloud does not take a write; its backends may be why."""

    def __init__(self, refusal: Refused) -> None:
        self.refusal = refusal


class PresentNodes:
    """Performs work for nodes without those whose machine ended, once the cloud refuses a write."""

    def __init__(self, instances: Instances) -> None:
        self._describe, self._look_up = instances.describe, look_up_of(instances)
        self._absent = dict[str, tuple[float, float]]()
        """By provider IDs without a machine: since when, and until when it is left out."""
        self._known = Newest[int, None]()
        """Hashes of those that are there or cannot be asked about: kubelets may write long ones."""
        self._turn, self._asking = SharedLock(), SharedLock()
        self._ended_at = float("-inf")

    @property
    def is_in_turn(self) -> bool:
        """Whether machines end, so that work is performed one by one.

        That some are still in their turn is no reason: with changes all the time some always are.
        """
        return self._turn.is_held and time.monotonic() - self._ended_at < ENDING

    async def write(self, write: Awaitable[T]) -> T:
        """One write inside of what is performed, whose refusal the nodes may be the reason for."""
        try:
            return await write
        except (Conflict, NoRoom, NotFound):
            raise
        except Refused as refusal:
            raise _RefusedWrite(refusal) from refusal

    async def ensure(
        self, perform: Callable[[Sequence[Node]], Awaitable[Balancer]], nodes: Sequence[Node]
    ) -> Balancer:
        """As `perform`; `lacking` while a node that is left out may come back."""
        balancer = await self.perform(perform, nodes)
        return replace(balancer, lacking=LEFT_OUT) if self._retry_after(nodes) else balancer

    async def update(
        self, perform: Callable[[Sequence[Node]], Awaitable[None]], nodes: Sequence[Node]
    ) -> None:
        """As `perform`; `LeftOut` while a node that is left out may come back."""
        await self.perform(perform, nodes)
        if seconds := self._retry_after(nodes):
            raise LeftOut(LEFT_OUT, seconds)

    def _retry_after(self, nodes: Sequence[Node]) -> float:
        """Seconds until those left out are looked for again, as the cloud may be wrong; 0 for none.

        Ever more seldom, and in the end never: a kubelet may name a machine that never was.
        """
        now, absent = time.monotonic(), (self._absent.get(node.provider_id) for node in nodes)
        left_out = [since for since, until in filter(None, absent) if until >= now]
        youngest = min((now - since for since in left_out), default=ABSENT_AWAITED)
        return max(ABSENT_TRUSTED, youngest) + 1.0 if youngest < ABSENT_AWAITED else 0.0

    async def perform(
        self, perform: Callable[[Sequence[Node]], Awaitable[T]], nodes: Sequence[Node]
    ) -> T:
        """Perform it, and again without the nodes whose machine ended when that is refused.

        While machines end, one Service at a time: of many that wait for their grants, each would
        find that another machine has ended since it last asked.
        """
        await self._ask_again(nodes)
        if not self.is_in_turn:
            with suppress(_RefusedWrite):
                return await self._attempt(perform, nodes)
        try:
            async with asyncio.timeout(TURN_WAIT) as wait, self._turn.held():
                wait.reschedule(None)
                await self._has_absent(nodes)
                for _ in range(TURN_ATTEMPTS):
                    with suppress(_RefusedWrite):
                        return await self._attempt(perform, nodes)
        except TimeoutError:
            if not wait.expired():
                raise
        raise RetryAfter("machines of its nodes end all the time: tried again", 0.0)

    async def _attempt(
        self, perform: Callable[[Sequence[Node]], Awaitable[T]], nodes: Sequence[Node]
    ) -> T:
        """Raises `_RefusedWrite` where a machine has ended, so that it is worth another one."""
        sent = self._present(nodes)
        try:
            return await perform(sent)
        except _RefusedWrite as refused:
            if await self._has_absent(sent):
                raise
            raise refused.refusal from None

    async def _ask_again(self, nodes: Sequence[Node]) -> None:
        """Whether those left out are back, by the cloud's answer, and new ones there while some are
        left out: each write that is refused makes others wait, and a kubelet may name others again.
        """
        async with self._asking.held():
            due = [node for node in self._present(nodes) if self._is_due(node)]
            try:
                await self._ask(self._look_up, due, len(nodes))
            except CloudError:  # so that they are looked for as long as it fails
                now = time.monotonic()
                self._remember(due)
                for key in {item.provider_id for item in due} & self._absent.keys():
                    since = max(self._absent[key][0], now - ABSENT_AWAITED / 2)
                    self._absent[key] = since, now + ABSENT_TRUSTED

    def _is_due(self, node: Node) -> bool:
        key = node.provider_id
        return key in self._absent or bool(self._absent and key and hash(key) not in self._known)

    def _remember(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self._known[hash(node.provider_id)] = None

    def _present(self, nodes: Sequence[Node]) -> Sequence[Node]:
        now = time.monotonic()
        return [node for node in nodes if self._absent.get(node.provider_id, (0.0, 0.0))[1] < now]

    async def _has_absent(self, nodes: Sequence[Node]) -> bool:
        """Whether some of these nodes have no machine any more, by what the cloud says now."""
        asked = [node for node in self._present(nodes) if node.provider_id]
        if await self._ask(self._describe, asked, len(asked)):
            self._ended_at = time.monotonic()
        return len(self._present(nodes)) < len(nodes)

    async def _ask(
        self, read: Read[Node, Answer], nodes: Sequence[Node], total: int
    ) -> Sequence[Node]:
        """Leave out those without a machine; while some are, by no proof, which takes a call each.

        It raises where these are most of `total` and their kubelets are alive: all would leave all
        load balancers by one wrong answer. A few kubelets may name machines that never were.
        """
        if not nodes:
            return []
        answers: Mapping[str, Answer] = await invoke(read, nodes)
        lost = [node for node in nodes if is_absent(answers.get(node.name))]
        if (ready := sum(node.is_ready for node in lost)) > max(PLAUSIBLE_LOSS, total / 2):
            raise CloudError(f"the cloud reports {ready} machines of Ready nodes gone: not trusted")
        self._note(nodes, lost)
        return lost

    def _note(self, asked: Sequence[Node], lost: Sequence[Node]) -> None:
        """Leave out the `lost` ones of `asked`; forget those that no one asks about any more."""
        now = time.monotonic()
        old = now - ABSENT_AWAITED
        left = {key: it for key, it in self._absent.items() if it[1] > old}
        since = {item.provider_id: left.pop(item.provider_id, (now, now))[0] for item in asked}
        ids = {item.provider_id for item in lost}
        self._absent = left | {key: (since[key], now + ABSENT_TRUSTED) for key in ids}
        self._remember(item for item in asked if item.provider_id not in ids)
        for key in ids:
            self._known.pop(hash(key), None)
