"""Reads about many objects in batches: who waits for which, and what ends the waiting."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ccm.bus.in_flight import InFlightJournal, read_in_flight
from ccm.cloud.gate import current_priority
from ccm.decide.budget import Priority
from ccm.errors import CloudError, NotLeading, Throttled
from ccm.model.cloud import Answer, Instance, Unknown
from ccm.model.objects import Node
from tests.support.cloud import Inventory, new_provider
from tests.support.cluster import Cluster
from tests.support.context import TIMINGS, FakePort, controller_context
from tests.support.nodes import machine, node
from tests.support.waiting import let_run, until
from workers.batch_reader import MOST_IN_VAIN, BatchReader
from workers.executor import KeyExecutor
from workers.node import controller as module

pytestmark = pytest.mark.virtual_time


class Reading:
    """A reader, its cloud, and reconciles that do nothing but read."""

    def __init__(self, path: Path, page: int, limit: int) -> None:
        self.machines, self.path = Inventory(page), path
        port = FakePort()
        self.quarantine = KeyExecutor(InFlightJournal(path), port.send, {}, limit)
        provider = new_provider(instances=self.machines)
        context = controller_context(module, provider, Cluster(), port, executor=self.quarantine)
        self.reader: BatchReader[Node, Answer] = BatchReader(
            self._describe, page, Priority.NODE_INIT, context
        )

    def start(self, *names: str) -> list["asyncio.Task[Answer]"]:
        for name in names:
            self.machines.answers[name] = machine(f"fake://{name}")
        return [asyncio.create_task(self._read(name)) for name in names]

    async def _describe(self, nodes: Sequence[Node]) -> Mapping[str, Answer]:
        return await self.machines.describe(nodes)

    async def _read(self, name: str) -> Answer:
        await self.quarantine.acquire_slot()
        try:
            with self.quarantine.executing(name):
                return await self.reader.read(node(name=name))
        finally:
            self.quarantine.release_slot(name)


@asynccontextmanager
async def reading(directory: Path, page: int = 100, limit: int = 1) -> AsyncIterator[Reading]:
    made = Reading(directory / "journal", page, limit)
    running = asyncio.create_task(made.reader.run())
    try:
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(("count", "page", "reads"), [(1, 2, 1), (2, 2, 1), (5, 2, 3), (40, 10, 4)])
async def test_objects_that_come_together_cost_a_read_a_page(
    short_dir: Path, count: int, page: int, reads: int
) -> None:
    """With a single place: whoever waits for a page to fill leaves it to the next."""
    async with reading(short_dir, page) as r:
        names = [f"n{number}" for number in range(count)]
        answers = await asyncio.gather(*r.start(*names))
        assert answers == [Instance(f"fake://{name}") for name in names]
        assert [name for read in r.machines.reads for name in read] == names
        assert len(r.machines.reads) == reads


async def test_a_read_is_in_the_journal_and_those_that_wait_for_a_page_are_not(
    short_dir: Path,
) -> None:
    async with reading(short_dir) as r:
        r.machines.gate.clear()
        tasks = r.start("a", "b")
        await let_run()
        assert read_in_flight(r.path) == []
        await until(lambda: r.machines.reads)
        assert read_in_flight(r.path) == ["a", "b"]
        r.machines.gate.set()
        await asyncio.gather(*tasks)
        assert read_in_flight(r.path) == []


@pytest.mark.parametrize("failure", [NotLeading("not now"), RuntimeError("a bug")])
async def test_a_read_that_fails_fails_for_all_its_objects(
    short_dir: Path, failure: Exception
) -> None:
    async with reading(short_dir) as r:
        r.machines.failures = [failure]
        answers = await asyncio.gather(*r.start("a", "b"), return_exceptions=True)
        is_raised = isinstance(failure, NotLeading)
        assert [isinstance(answer, NotLeading) for answer in answers] == [is_raised] * 2
        assert not any(isinstance(answer, Instance) for answer in answers)


async def test_a_read_that_breaks_off_fails_its_keys_and_keeps_no_one_waiting(
    short_dir: Path,
) -> None:
    async with reading(short_dir) as r:
        r.machines.gate.clear()
        tasks = r.start("a", "b")
        await until(lambda: r.machines.reads)
    for task in tasks:
        with pytest.raises(CloudError, match="broken off"):
            await task
    assert read_in_flight(r.path) == []


async def test_a_throttled_read_is_repeated_as_it_was(short_dir: Path) -> None:
    async with reading(short_dir) as r:
        r.machines.failures = [Throttled("slow down", 1.0), Throttled("slow down", 1.0)]
        await asyncio.gather(*r.start("a", "b"))
        assert r.machines.reads == [["a", "b"]] * 3


async def test_reads_that_find_nothing_take_turns_with_load_balancers(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubelets may register under ever new names; what finds a machine again is in front again."""
    asked = list[Priority]()
    async with reading(short_dir) as r:
        describe = r.machines.describe

        async def noted(nodes: Sequence[Node]) -> Mapping[str, Answer]:
            asked.append(current_priority())
            return await describe(nodes)

        monkeypatch.setattr(r.machines, "describe", noted)
        for number in range(2 * MOST_IN_VAIN):
            (reads,) = r.start(f"n{number}")
            r.machines.answers[f"n{number}"] = Unknown("no machine is called so")
            await reads
        for name in ("a", "b"):
            await asyncio.gather(*r.start(name))
    first, later = Priority.NODE_INIT, Priority.LB_ENSURE
    assert asked == [first] * MOST_IN_VAIN + [later] * (MOST_IN_VAIN + 1) + [first]


async def test_keys_that_are_cancelled_while_they_wait_leave_nothing_behind(
    short_dir: Path,
) -> None:
    """Neither a place nor an entry in the journal, and no read about nobody."""
    async with reading(short_dir, page=3) as r:
        cancelled = r.start("a", "b")
        await let_run()
        for task in cancelled:
            task.cancel()
        await asyncio.gather(*cancelled, return_exceptions=True)
        await asyncio.sleep(0.05)  # time in which nothing may be read
        assert (r.machines.reads, read_in_flight(r.path)) == ([], [])
        await asyncio.gather(*r.start("c"))
        assert r.machines.reads == [["c"]]


async def test_a_page_that_lost_a_key_waits_for_others_and_does_not_spin(short_dir: Path) -> None:
    async with reading(short_dir, page=3) as r:
        await asyncio.gather(*r.start("a", "b"))
        tasks = r.start("c", "d")
        await until(lambda: len(r.reader._waiting) == 2)
        r.reader._enough.set()  # as a third one does that is cancelled before anybody looks
        await let_run(20)
        assert not r.reader._enough.is_set()
        await asyncio.gather(*tasks)
        assert r.machines.reads == [["a", "b"], ["c", "d"]]


async def test_the_read_of_an_object_that_came_alone_starts_at_once(short_dir: Path) -> None:
    loop = asyncio.get_running_loop()
    async with reading(short_dir) as r:
        began = loop.time()
        for name in ("a", "b", "c"):
            await asyncio.gather(*r.start(name))
        assert loop.time() - began < 0.5  # the time after a page of several
        assert r.machines.reads == [["a"], ["b"], ["c"]]


async def test_one_object_that_left_in_a_lull_too_soon_makes_the_next_ones_wait_longer(
    short_dir: Path,
) -> None:
    loop = asyncio.get_running_loop()
    async with reading(short_dir) as r:
        await asyncio.gather(*r.start("a", "b"))
        await asyncio.gather(*r.start("c"))
        began = loop.time()
        await asyncio.gather(*r.start("d"))
        assert loop.time() - began > 1.5 * TIMINGS.batch.join_window
        assert r.machines.reads == [["a", "b"], ["c"], ["d"]]


async def test_a_page_leaves_when_no_more_objects_come_and_waits_longer_when_that_was_too_soon(
    short_dir: Path,
) -> None:
    loop = asyncio.get_running_loop()
    async with reading(short_dir) as r:
        await asyncio.gather(*r.start("a", "b"))
        began = loop.time()
        await asyncio.gather(*r.start("c", "d"))
        assert loop.time() - began < 1.5 * TIMINGS.batch.join_window
        began = loop.time()
        await asyncio.gather(*r.start("e", "f"))
        assert loop.time() - began > 1.5 * TIMINGS.batch.join_window
        assert r.machines.reads == [["a", "b"], ["c", "d"], ["e", "f"]]
