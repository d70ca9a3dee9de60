"""What a key has to pass before it executes, and what it holds meanwhile."""

import asyncio
import time
from pathlib import Path

import pytest

from ccm.bus.frames import Survived
from ccm.bus.in_flight import InFlightJournal, read_in_flight
from ccm.decide.quarantine import FREE, Suspicion
from tests.support.context import FakePort, new_executor
from tests.support.waiting import let_run, until
from workers.executor import HELD_RETRY, SUSPECT_DELAY, KeyExecutor


class Keys:
    """Keys that go through a quarantine as a runner leads them, and what they are doing."""

    def __init__(self, quarantine: KeyExecutor) -> None:
        self.quarantine = quarantine
        self.executing: set[str] = set()
        self.waiting: set[str] = set()
        self.most = 0  # keys that ever executed at the same time
        self.answered = asyncio.Event()  # ends the waiting
        self.finished = asyncio.Event()  # ends the executing
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, *keys: str, waits: bool = False) -> None:
        for key in keys:
            self.tasks[key] = asyncio.create_task(self._run(key, waits))

    async def _run(self, key: str, waits: bool) -> None:
        await self.quarantine.acquire_slot()
        try:
            with self.quarantine.executing(key):
                if waits:
                    async with self.quarantine.waiting(key):
                        self.waiting.add(key)
                        await self.answered.wait()
                self.executing.add(key)
                self.most = max(self.most, len(self.executing))
                await self.finished.wait()
        finally:
            self.executing.discard(key)
            self.waiting.discard(key)
            self.quarantine.release_slot(key)


@pytest.fixture
def path(short_dir: Path) -> Path:
    return short_dir / "journal"


@pytest.fixture
def journal(path: Path) -> InFlightJournal:
    return InFlightJournal(path)


async def test_a_key_that_waits_gives_its_place_away_and_takes_it_back(
    path: Path, journal: InFlightJournal
) -> None:
    keys = Keys(new_executor(FakePort(), 1, record=journal))
    keys.start("a", "b", waits=True)
    await until(lambda: keys.waiting == {"a", "b"})
    keys.start("c")
    await until(lambda: keys.executing == {"c"})
    assert read_in_flight(path) == ["c"]
    keys.answered.set()
    await let_run(20)
    assert keys.executing == {"c"}  # there is one place
    keys.finished.set()
    await asyncio.gather(*keys.tasks.values())
    assert (keys.most, read_in_flight(path)) == (1, [])


@pytest.mark.parametrize("cancellations", [1, 2, 3])
@pytest.mark.parametrize("is_answered", [False, True])
async def test_cancellation_while_waiting_loses_no_place_and_leaves_the_journal_empty(
    path: Path, journal: InFlightJournal, cancellations: int, is_answered: bool
) -> None:
    """Also while the key waits for its place, and whoever cancels it has no patience."""
    quarantine = new_executor(FakePort(), 1, record=journal)
    keys = Keys(quarantine)
    keys.start("a", waits=True)
    await until(lambda: keys.waiting)
    keys.start("b")
    await until(lambda: keys.executing == {"b"})
    if is_answered:
        keys.answered.set()
        await let_run()
    for _ in range(cancellations):
        keys.tasks["a"].cancel()
        await let_run()
    keys.finished.set()
    await asyncio.gather(*keys.tasks.values(), return_exceptions=True)
    assert read_in_flight(path) == []
    again = Keys(quarantine)
    again.start("c", "d")
    await let_run(20)
    assert again.executing == {"c"}
    again.finished.set()
    await asyncio.gather(*again.tasks.values())


async def test_a_key_of_a_batch_is_in_the_journal_as_long_as_anything_is_done_for_it(
    path: Path, journal: InFlightJournal
) -> None:
    quarantine = new_executor(FakePort(), 1, record=journal)
    await quarantine.acquire_slot()
    with quarantine.executing("a"):
        with quarantine.journaled(["a", "b"]):
            assert read_in_flight(path) == ["a", "b"]
        assert read_in_flight(path) == ["a"]
    assert read_in_flight(path) == []


def suspicions(*groups: str, first: int = 1) -> dict[str, Suspicion]:
    """The letters of each word are the keys of one group."""
    return {key: Suspicion(0.0, at) for at, keys in enumerate(groups, first) for key in keys}


def test_a_key_of_one_death_is_held_up_by_nothing_and_reported_about_once(
    journal: InFlightJournal,
) -> None:
    port = FakePort()
    executor = KeyExecutor(journal, port.send, suspicions("ab", first=FREE))
    assert executor.seconds_to_wait("a") <= 0
    for key in ("a", "a", "other"):
        executor.survived(key)
    assert port.sent == [Survived("a")]


def test_suspects_leave_others_a_second_and_then_execute_by_groups(
    journal: InFlightJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    executor = KeyExecutor(journal, FakePort().send, suspicions("ab", "c"))
    assert executor.seconds_to_wait("newcomer") <= 0
    assert executor.seconds_to_wait("a") == SUSPECT_DELAY
    assert executor.seconds_to_wait("c") == 2 * SUSPECT_DELAY
    now += 2 * SUSPECT_DELAY
    with executor.executing("a"):
        assert executor.seconds_to_wait("b") <= 0
        assert executor.seconds_to_wait("c") == HELD_RETRY
        assert executor.seconds_to_wait("newcomer") <= 0
    with executor.executing("c"):
        assert executor.seconds_to_wait("b") == HELD_RETRY


def test_the_group_that_was_hit_last_executes_last(journal: InFlightJournal) -> None:
    """So that everybody else is served before a worker dies again."""
    known = {
        "hit": Suspicion(20.0, 4),
        "before": Suspicion(10.0, 3),
        "retried": Suspicion(15.0, 2, 1),
        "quarantined": Suspicion(time.monotonic() + 3600.0, 1, 1),
    }
    executor = KeyExecutor(journal, FakePort().send, known)
    order = ["before", "retried", "hit", "quarantined"]
    assert sorted(known, key=executor.seconds_to_wait) == order


def test_a_quarantined_key_is_left_alone_for_its_time(
    journal: InFlightJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    known = {"now": Suspicion(0.0, 1, 1), "later": Suspicion(160.0, 2, 1)}
    executor = KeyExecutor(journal, FakePort().send, known)
    assert executor.seconds_to_wait("later") == 60.0
    assert executor.seconds_to_wait("now") <= SUSPECT_DELAY
    assert executor.seconds_to_wait("any") <= 0
    assert executor.is_quarantined("later")
    assert not executor.is_quarantined("now")
