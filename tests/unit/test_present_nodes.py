"""Work for Nodes of which some have no machine any more, as Kubernetes has yet to notice."""

import asyncio
import time
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain
from typing import Any

import pytest

from ccm.cloud.gate import current_owner, with_priority
from ccm.cloud.present_nodes import ABSENT_TRUSTED, ENDING, PresentNodes
from ccm.cloud.testkit.harness import node
from ccm.decide.budget import Priority
from ccm.errors import CloudError, LeftOut, Refused
from ccm.model.cloud import Answer, Balancer, Gone, Unknown
from ccm.model.objects import Node
from tests.support.cloud import ProvingMachines

NODES = [node(name, f"cloud://{name}") for name in ("there", "ended")]


class Machines:
    """Some of them have ended."""

    def __init__(self, ended: Collection[str] = ("ended",)) -> None:
        self.ended = ended

    async def describe(self, nodes: Sequence[Node]) -> dict[str, Answer]:
        gone = Gone("it has ended")
        return {item.name: gone if item.name in self.ended else Unknown("?") for item in nodes}


@pytest.mark.parametrize(("ready", "is_trusted"), [(0, True), (1, True), (2, True), (3, False)])
async def test_a_cloud_that_calls_most_ready_nodes_gone_takes_none_from_load_balancers(
    ready: int, is_trusted: bool
) -> None:
    """As one of another account does; two kubelets that name made-up machines are no such cloud."""
    nodes = [node(name, f"cloud://{name}") for name in ("there", "a", "b", "c")]
    for alive in nodes[1 : 1 + ready]:
        alive.raw["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    machines: Any = Machines(ended=("a", "b", "c"))
    present, performed = PresentNodes(machines), list[int]()

    async def refuse() -> None:
        raise Refused("what was sent is not taken")

    async def perform(sent: Sequence[Node]) -> None:
        performed.append(len(sent))
        if len(sent) > 1:
            await present.write(refuse())

    with nullcontext() if is_trusted else pytest.raises(CloudError, match="not trusted"):
        await present.perform(perform, nodes)
    assert performed == ([4, 1] if is_trusted else [4])


@pytest.mark.virtual_time
async def test_work_is_performed_one_by_one_only_while_machines_end() -> None:
    """Some Services change all the time: with them, all would wait in turns for ever."""
    machines: Any = Machines()
    present, counts = PresentNodes(machines), [list[int](), list[int]()]
    under_way, began = 0, time.monotonic()

    async def refuse() -> None:
        raise Refused("an instance of the list has ended")

    async def perform(sent: Sequence[Node]) -> None:
        nonlocal under_way
        under_way += 1
        counts[time.monotonic() - began > 2 * ENDING].append(under_way)
        await asyncio.sleep(0.3)
        under_way -= 1
        if len(sent) > 1:
            await present.write(refuse())

    async def change() -> None:
        while time.monotonic() - began < 3 * ENDING:
            await present.perform(perform, NODES)

    await asyncio.gather(*(change() for _ in range(8)))
    while_they_end, later = counts
    assert 1 in while_they_end[8:]
    assert max(later) == 8


@pytest.mark.virtual_time
async def test_who_wants_much_while_machines_end_holds_up_no_other() -> None:
    """Owners take turns, and no write of who has the turn waits behind all else of its owner."""
    machines: Any = Machines()
    present, order, owners = PresentNodes(machines), list[str](), set[str]()

    async def refuse() -> None:
        raise Refused("an instance of the list has ended")

    async def work(owner: str) -> None:
        async def perform(sent: Sequence[Node]) -> None:
            await asyncio.sleep(1.0)
            if len(sent) > 1:
                await present.write(refuse())
            owners.add(current_owner())
            order.append(owner)

        with with_priority(Priority.LB_ENSURE, owner):
            await present.perform(perform, NODES)

    await asyncio.gather(*(work("hostile") for _ in range(40)), work("other"))
    assert order.index("other") < 3
    assert owners == {""}


async def perform_or_refuse(
    present: PresentNodes, refused: list[int], sent: Sequence[Node]
) -> None:
    """A write of a second, which the cloud refuses for more than one node."""

    async def refuse() -> None:
        refused.append(1)
        raise Refused("an instance of the list is not there")

    await asyncio.sleep(1.0)
    if len(sent) > 1:
        await present.write(refuse())


@pytest.mark.virtual_time
async def test_a_machine_that_never_was_has_few_writes_refused() -> None:
    """A kubelet may name one, and keep its Node Ready: it is there for ever."""
    machines: Any = Machines()
    present, refused, took = PresentNodes(machines), list[int](), list[float]()

    perform = partial(perform_or_refuse, present, refused)
    for _ in range(20):
        began = time.monotonic()
        await asyncio.gather(*(present.perform(perform, NODES) for _ in range(8)))
        took.append(time.monotonic() - began)
        await asyncio.sleep(2 * ABSENT_TRUSTED)
    assert len(refused) <= 8
    assert max(took[1:]) < 2 * min(took)


@pytest.mark.virtual_time
async def test_machines_that_never_were_hold_up_no_one_by_a_new_name_each_time() -> None:
    """A kubelet registers again with another made-up ID: each had all Services work one by one."""

    class Made(Machines):
        async def describe(self, nodes: Sequence[Node]) -> dict[str, Answer]:
            self.ended = {item.name for item in nodes if item.name != "there"}
            return await super().describe(nodes)

    machines: Any = Made()
    present, refused, took = PresentNodes(machines), list[int](), list[float]()

    perform = partial(perform_or_refuse, present, refused)
    for at in range(40):
        nodes = [NODES[0], node(f"made-{at}", f"cloud://made-{at % 20}")]
        began = time.monotonic()
        await asyncio.gather(*(present.perform(perform, nodes) for _ in range(8)))
        took.append(time.monotonic() - began)
        await asyncio.sleep(ABSENT_TRUSTED)
    assert len(refused) <= 8
    assert max(took[1:]) < 2 * min(took)


@pytest.mark.virtual_time
async def test_a_machine_that_never_was_is_looked_for_once_while_none_is_read() -> None:
    """All Services wait for who asks: as many reads that fail would be one after another."""
    asked = list[float]()

    class Unanswered(Machines):
        async def describe(self, nodes: Sequence[Node]) -> dict[str, Answer]:
            if time.monotonic() - began < ABSENT_TRUSTED:
                return await super().describe(nodes)
            asked.append(time.monotonic())
            await asyncio.sleep(1.0)
            raise CloudError("instances cannot be read")

    began = time.monotonic()
    pool = Pool(Unanswered())
    await pool.update()
    await asyncio.sleep(2 * ABSENT_TRUSTED)
    await asyncio.gather(*(pool.update() for _ in range(40)))
    assert len(asked) == 1
    assert pool.taken == [1] * 41


@pytest.mark.virtual_time
async def test_what_all_wait_for_is_asked_in_no_owners_turn() -> None:
    """Whether a machine still is not there: one Service asks, and all others wait for it."""
    owners = list[str]()

    class Asked(Machines):
        async def describe(self, nodes: Sequence[Node]) -> dict[str, Answer]:
            owners.append(current_owner())
            return await super().describe(nodes)

    machines: Any = Asked()
    present = PresentNodes(machines)

    async def refuse() -> None:
        raise Refused("an instance of the list is not there")

    async def perform(sent: Sequence[Node]) -> None:
        if len(sent) > 1:
            await present.write(refuse())

    with with_priority(Priority.LB_ENSURE, "theirs"):
        await present.perform(perform, NODES)
        await asyncio.sleep(2 * ABSENT_TRUSTED)
        owners.clear()
        await present.perform(perform, NODES)
    assert owners == [""]


class Pool:
    """A load balancer that takes no node without a machine; how many it took, each time."""

    def __init__(self, machines: Any) -> None:
        self._machines, self.present = machines, PresentNodes(machines)
        self.taken: list[int] = []

    async def write(self, sent: Sequence[Node]) -> Balancer:
        await self.present.write(self._write(sent))
        return Balancer("pool", ())

    async def _write(self, sent: Sequence[Node]) -> None:
        if {item.name for item in sent} & {*self._machines.ended}:
            raise Refused("an instance of the list is not there")
        self.taken.append(len(sent))

    async def update(self) -> float:
        """Seconds until it wants to be called again."""

        async def write(sent: Sequence[Node]) -> None:
            await self.write(sent)

        try:
            await self.present.update(write, NODES)
        except LeftOut as wait:
            return wait.seconds
        return 0.0


@pytest.mark.virtual_time
async def test_a_node_that_a_wrong_answer_called_gone_is_back_in_a_minute() -> None:
    """The cloud refused a write for a while, and called the machine gone: nothing else changes."""
    machines = Machines()
    pool = Pool(machines)
    assert (await pool.present.ensure(pool.write, NODES)).lacking
    wait = await pool.update()
    machines.ended = ()
    await asyncio.sleep(wait)
    assert await pool.update() == 0.0
    assert pool.taken == [1, 1, 2]
    assert wait < 2 * ABSENT_TRUSTED
    assert not (await pool.present.ensure(pool.write, NODES)).lacking


@pytest.mark.virtual_time
async def test_a_node_is_looked_for_as_long_as_machines_cannot_be_read() -> None:
    """The cloud called its machine gone once; then no read was answered for twenty minutes."""
    began = time.monotonic()

    class Unanswered(Machines):
        async def describe(self, nodes: Sequence[Node]) -> dict[str, Answer]:
            if time.monotonic() - began > ABSENT_TRUSTED and self.ended:
                raise CloudError("instances cannot be read")
            return await super().describe(nodes)

    machines = Unanswered()
    pool = Pool(machines)
    wait = await pool.update()
    while wait and time.monotonic() - began < 1200.0:
        await asyncio.sleep(wait)
        wait = await pool.update()
    machines.ended = ()
    assert wait
    await asyncio.sleep(wait)
    assert await pool.update() == 0.0
    assert pool.taken[-1] == 2
    assert len(pool.taken) < 10


@pytest.mark.virtual_time
async def test_a_machine_that_never_was_is_looked_for_ever_more_seldom() -> None:
    """Each time is a read for every Service; in the end it waits for the period of all."""
    pool, waits = Pool(Machines()), list[float]()
    while wait := await pool.update():
        waits.append(wait)
        await asyncio.sleep(wait)
    assert len(waits) <= 6
    assert waits[-1] > 4 * waits[0]
    assert not (await pool.present.ensure(pool.write, NODES)).lacking


@pytest.mark.virtual_time
async def test_that_a_machine_is_still_not_there_takes_no_proof() -> None:
    """Each takes a call for which all Services wait: 200 took DigitalOcean two minutes of each."""

    class LookedUp(ProvingMachines):
        @property
        def ended(self) -> set[str]:
            return {name for name, it in self.answers.items() if isinstance(it, Gone)}

    machines = LookedUp()
    machines.answers = {"there": Unknown("?"), "ended": Gone("it has ended")}
    pool = Pool(machines)
    for _ in range(5):
        wait = await pool.update()
        await asyncio.sleep(2 * ABSENT_TRUSTED)
    assert [*chain(*machines.proven)].count("ended") == 1
    assert pool.taken == [1] * 5
    machines.answers["ended"] = Unknown("?")
    assert wait
    await pool.update()
    assert pool.taken[-1] == 2


@pytest.mark.virtual_time
async def test_machines_that_never_were_take_no_proof_by_a_new_name_each_time() -> None:
    """Nodes that register again with other made-up IDs: all Services waited for a call for each."""
    machines: Any = ProvingMachines(seconds=0.7)
    machines.answers = dict.fromkeys((f"made-{at}" for at in range(1000)), Gone("it has ended"))
    present, refused, took = PresentNodes(machines), list[int](), list[float]()
    perform = partial(perform_or_refuse, present, refused)
    for turn in range(10):
        made = (f"made-{at}" for at in range(100 * turn, 100 * turn + 100))
        nodes = [NODES[0], *(node(name, f"cloud://{name}") for name in made)]
        began = time.monotonic()
        await present.perform(perform, nodes)
        took.append(time.monotonic() - began)
        await asyncio.sleep(ABSENT_TRUSTED)
    assert max(took[1:]) < 3.0
    assert {*chain(*machines.proven)} == {"there", *(f"made-{at}" for at in range(100))}
