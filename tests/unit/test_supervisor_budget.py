"""The one cloud budget of all workers, as they see it."""

import asyncio
import time
from collections import Counter

import pytest

from ccm.bus.frames import AskCalls, CloudThrottled, Granted, Message, ReturnCalls
from ccm.decide.budget import Priority
from ccm.supervisor.budget import Budget

from .waiting import let_run, until


class Workers:
    """What each worker was told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Message]] = []

    def send(self, worker: str, message: Message) -> bool:
        self.told.append((worker, message))
        return True

    @property
    def granted(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for worker, message in self.told:
            assert isinstance(message, Granted)
            counts[worker] += message.count
        return counts


def budget(workers: Workers, per_second: float, burst: int, **rates: float) -> Budget:
    made = Budget(rates, workers.send)
    made.declare({"read": [per_second, burst]})
    return made


def ask(count: int, priority: Priority = Priority.ROUTE, number: int = 1) -> AskCalls:
    return AskCalls(number, "read", int(priority), count)


@pytest.fixture
def workers() -> Workers:
    return Workers()


async def test_what_is_in_the_bucket_is_granted_at_once(workers: Workers) -> None:
    shared = budget(workers, 0.001, 5)
    shared.ask("node-0", ask(3, number=7))
    assert workers.told == [("node-0", Granted(7, 3))]


async def test_all_workers_spend_from_one_bucket(workers: Workers) -> None:
    shared = budget(workers, 0.001, 5)
    for worker in ("a", "b", "c"):
        shared.ask(worker, ask(3))
    await let_run()
    assert workers.granted == {"a": 3, "b": 2}


async def test_the_rest_comes_as_the_bucket_fills(workers: Workers) -> None:
    began = time.monotonic()
    shared = budget(workers, 200.0, 2)
    shared.ask("a", ask(12, number=3))
    await until(lambda: workers.granted["a"] == 12)
    assert time.monotonic() - began >= 10 / 200.0 - 0.01
    assert all(message == Granted(3, message.count) for _, message in workers.told
               if isinstance(message, Granted))  # fmt: skip


async def test_the_most_urgent_worker_gets_the_next_call(workers: Workers) -> None:
    shared = budget(workers, 50.0, 1)
    shared.ask("first", ask(1))
    shared.ask("routes", ask(1, Priority.ROUTE))
    shared.ask("nodes", ask(1, Priority.NODE_INIT))
    await until(lambda: len(workers.told) == 3)
    assert [worker for worker, _ in workers.told] == ["first", "nodes", "routes"]


async def test_a_flag_replaces_the_providers_rate(workers: Workers) -> None:
    shared = budget(workers, 1000.0, 5, read=0.25)
    assert shared.facts(time.monotonic())["read"]["full_per_second"] == 0.25


async def test_the_first_report_of_the_quotas_counts(workers: Workers) -> None:
    shared = budget(workers, 0.001, 5)
    shared.ask("a", ask(5))
    shared.declare({"read": [0.001, 5], "write": [0.001, 1]})
    shared.ask("a", ask(1))
    shared.ask("b", AskCalls(1, "write", 0, 1))
    assert workers.granted == {"a": 5, "b": 1}


async def test_calls_that_were_not_made_go_to_whoever_waits(workers: Workers) -> None:
    shared = budget(workers, 0.001, 2)
    shared.ask("a", ask(2))
    shared.ask("b", ask(1))
    shared.take_back(ReturnCalls("read", 1))
    assert workers.granted == {"a": 2, "b": 1}


async def test_more_than_the_burst_cannot_be_given_back(workers: Workers) -> None:
    shared = budget(workers, 0.001, 2)
    shared.take_back(ReturnCalls("read", 1000))
    shared.ask("a", ask(1000))
    assert workers.granted == {"a": 2}


async def test_a_throttled_worker_slows_all_workers(workers: Workers) -> None:
    shared = budget(workers, 1000.0, 1000)
    shared.slow_down("a", CloudThrottled("read", 0.1))
    shared.ask("b", ask(1))
    await let_run()
    assert workers.told == []
    assert shared.facts(time.monotonic())["read"]["per_second"] < 510.0
    began = time.monotonic()
    await until(lambda: workers.granted["b"] == 1)
    assert time.monotonic() - began >= 0.05


async def test_classes_are_throttled_apart(workers: Workers) -> None:
    shared = budget(workers, 1000.0, 10)
    shared.declare({"write": [1000.0, 10]})
    shared.slow_down("a", CloudThrottled("write", 60.0))
    shared.ask("a", ask(1))
    assert workers.granted == {"a": 1}


async def test_a_worker_that_is_gone_is_not_waited_for(workers: Workers) -> None:
    shared = budget(workers, 100.0, 1)
    for worker in ("spender", "gone", "there"):
        shared.ask(worker, ask(1))
    shared.forget("gone")
    await until(lambda: workers.granted["there"] == 1)
    assert workers.granted["gone"] == 0


async def test_an_unknown_class_gets_nothing_and_says_so(
    workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    shared = budget(workers, 1000.0, 10)
    shared.ask("a", AskCalls(1, "nonsense", 0, 1))
    shared.take_back(ReturnCalls("nonsense", 1))
    shared.slow_down("a", CloudThrottled("nonsense", 1.0))
    assert workers.told == []
    assert "unknown budget class" in caplog.messages


async def test_status_shows_what_was_granted_and_who_waits(workers: Workers) -> None:
    shared = budget(workers, 0.001, 2)
    shared.ask("a", ask(3))
    facts = shared.facts(time.monotonic())["read"]
    assert (facts["granted"], facts["throttled"], facts["waiting"]) == (2, 0, {"a": 1})


async def test_no_storm_of_workers_gets_more_than_the_rate(workers: Workers) -> None:
    began = time.monotonic()
    shared = budget(workers, 100.0, 10)
    for number in range(50):
        shared.ask(f"worker-{number % 5}", ask(10, Priority(number % 6), number))
    for _ in range(20):
        await asyncio.sleep(0.005)  # while time passes, the promise must hold at every moment
        allowed = 10 + 100.0 * (time.monotonic() - began)
        assert workers.granted.total() <= allowed + 1e-6
    assert workers.granted.total() >= 10
