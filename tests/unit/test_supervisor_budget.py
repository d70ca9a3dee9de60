"""The one cloud budget of all workers, as they see it."""

import asyncio
import time
from collections import Counter

import pytest

from ccm.bus.frames import (
    AskCalls,
    CallsShut,
    CloudThrottled,
    Granted,
    MadeCalls,
    Message,
    ReturnCalls,
)
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
            if isinstance(message, Granted):
                counts[worker] += message.count
        return counts


def budget(workers: Workers, per_second: float, burst: int, **rates: float) -> Budget:
    shared = Budget(rates, workers.send)
    shared.declare({"read": [per_second, burst]})
    return shared


def ask(count: int, priority: Priority = Priority.ROUTE, number: int = 1) -> AskCalls:
    return AskCalls(number, "read", int(priority), count)


def refused(name: str, seconds: float | None) -> CloudThrottled:
    """The cloud refused a call that was granted just now."""
    return CloudThrottled(name, seconds, time.monotonic())


@pytest.fixture
def workers() -> Workers:
    return Workers()


async def test_what_is_in_the_bucket_is_granted_at_once(workers: Workers) -> None:
    shared = budget(workers, 0.001, 5)
    shared.ask("node-0", ask(3, number=7))
    ((worker, message),) = workers.told
    assert isinstance(message, Granted)
    assert (worker, message.number, message.count) == ("node-0", 7, 3)
    assert message.at == pytest.approx(time.monotonic(), abs=1.0)


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
    assert {message.number for _, message in workers.told if isinstance(message, Granted)} == {3}


async def test_the_most_urgent_worker_gets_the_next_call(workers: Workers) -> None:
    shared = budget(workers, 50.0, 1)
    shared.ask("first", ask(1))
    shared.ask("routes", ask(1, Priority.ROUTE))
    shared.ask("nodes", ask(1, Priority.NODE_INIT))
    await until(lambda: len(workers.told) == 3)
    assert [worker for worker, _ in workers.told] == ["first", "nodes", "routes"]


async def test_a_flag_replaces_the_providers_rate(workers: Workers) -> None:
    shared = budget(workers, 1000.0, 5, read=0.25)
    assert shared.status(time.monotonic())["read"]["full_per_second"] == 0.25


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
    shared.take_back("a", ReturnCalls("read", int(Priority.ROUTE), 1))
    assert workers.granted == {"a": 2, "b": 1}


async def test_more_than_was_granted_cannot_be_given_back(workers: Workers) -> None:
    shared = budget(workers, 0.001, 2)
    shared.take_back("a", ReturnCalls("read", int(Priority.ROUTE), 1000))
    shared.ask("a", ask(1000))
    assert workers.granted == {"a": 2}


async def test_a_throttled_worker_slows_all_workers(workers: Workers) -> None:
    shared = budget(workers, 1000.0, 1000)
    shared.slow_down("a", refused("read", 0.1))
    shared.ask("b", ask(1))
    await let_run()
    assert workers.told == []
    assert shared.status(time.monotonic())["read"]["per_second"] < 510.0
    began = time.monotonic()
    await until(lambda: workers.granted["b"] == 1)
    assert time.monotonic() - began >= 0.05


async def test_classes_are_throttled_apart(workers: Workers) -> None:
    shared = budget(workers, 1000.0, 10)
    shared.declare({"write": [1000.0, 10]})
    shared.slow_down("a", refused("write", 60.0))
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
    shared.take_back("a", ReturnCalls("nonsense", 0, 1))
    shared.slow_down("a", refused("nonsense", 1.0))
    assert workers.told == []
    shared.ask("b", AskCalls(2, "nonsense", 0, 3))
    assert len(caplog.messages) == 1
    assert "unknown budget class" in caplog.messages[0]
    status = shared.status(time.monotonic())["nonsense"]
    assert (status["state"], status["waiting"]) == ("unknown class", {"a": 1, "b": 3})


async def test_status_shows_what_was_granted_and_who_waits(workers: Workers) -> None:
    shared = budget(workers, 0.001, 2)
    shared.ask("a", ask(3))
    status = shared.status(time.monotonic())["read"]
    assert (status["granted"], status["throttled"], status["waiting"]) == (2, 0, {"a": 1})


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


# What is in a worker's hands.


def made(count: int, priority: Priority = Priority.ROUTE) -> MadeCalls:
    return MadeCalls("read", int(priority), count)


def in_hand(shared: Budget) -> dict[str, int]:
    found: dict[str, int] = shared.status(time.monotonic())["read"]["in_hand"]
    return found


async def test_the_grants_of_a_worker_that_is_gone_go_to_whoever_waits(workers: Workers) -> None:
    shared = budget(workers, 0.001, 5)
    shared.ask("gone", ask(5))
    shared.note_made("gone", made(2))
    shared.ask("there", ask(5))
    assert workers.granted["there"] == 0
    shared.forget("gone")
    assert workers.granted["there"] == 3
    assert in_hand(shared) == {"there": 3}


async def test_the_grants_of_a_worker_that_hangs_go_to_whoever_waits(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm.supervisor.budget.GOOD_FOR", 0.05)
    monkeypatch.setattr("ccm.supervisor.budget.GRACE", 0.05)
    shared = budget(workers, 0.001, 5)
    shared.ask("hangs", ask(6))
    shared.ask("there", ask(2))
    await until(lambda: workers.granted["there"] == 2)
    assert workers.granted["hangs"] == 5  # it waits for one more and does not get it
    shared.note_made("there", made(2))
    assert in_hand(shared) == {}
    assert shared.status(time.monotonic())["read"]["granted"] == 2


async def test_a_worker_that_speaks_again_is_served_again(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm.supervisor.budget.GOOD_FOR", 0.02)
    monkeypatch.setattr("ccm.supervisor.budget.GRACE", 0.02)
    shared = budget(workers, 0.001, 1)
    shared.ask("hangs", ask(2, number=1))
    await until(lambda: in_hand(shared) == {})
    assert workers.granted["hangs"] == 1
    shared.take_back("hangs", ReturnCalls("read", int(Priority.ROUTE), 1))
    assert workers.granted["hangs"] == 2


async def test_calls_that_were_made_although_we_gave_them_up_count(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm.supervisor.budget.GOOD_FOR", 0.02)
    monkeypatch.setattr("ccm.supervisor.budget.GRACE", 0.02)
    shared = budget(workers, 0.001, 4)
    shared.ask("late", ask(3))
    await until(lambda: in_hand(shared) == {})
    shared.note_made("late", made(3))
    shared.ask("other", ask(4))
    assert workers.granted["other"] == 1


async def test_a_worker_that_takes_no_message_keeps_its_place_but_no_grant(
    workers: Workers,
) -> None:
    shared = Budget({}, lambda worker, message: worker != "full" and workers.send(worker, message))
    shared.declare({"read": [0.001, 2]})
    shared.ask("full", ask(2))
    shared.ask("there", ask(2))
    assert workers.granted == {"there": 2}
    assert shared.status(time.monotonic())["read"]["waiting"] == {"full": 2}


async def test_calls_ahead_of_need_are_given_only_from_a_full_stock(workers: Workers) -> None:
    shared = budget(workers, 0.001, 10)
    shared.ask("a", AskCalls(1, "read", 0, 1, ahead=8))
    assert workers.granted == {"a": 5}  # one for the call that waits, and down to half the stock
    shared.ask("b", AskCalls(1, "read", 0, 1, ahead=8))
    assert workers.granted == {"a": 5, "b": 1}


async def test_nothing_is_given_ahead_while_somebody_waits(workers: Workers) -> None:
    shared = budget(workers, 100.0, 2)
    shared.ask("a", AskCalls(1, "read", 0, 4, ahead=8))
    shared.ask("b", AskCalls(1, "read", 0, 1, ahead=8))
    await until(lambda: workers.granted.total() >= 5)
    assert workers.granted == {"a": 4, "b": 1}


async def test_what_is_held_ahead_counts_against_the_burst(workers: Workers) -> None:
    shared = budget(workers, 500.0, 10)
    shared.ask("a", AskCalls(1, "read", 0, 1, ahead=8))
    shared.note_made("a", made(1, Priority.NODE_INIT))
    await asyncio.sleep(0.05)  # time enough for 25 more
    shared.ask("b", ask(10))
    assert workers.granted["b"] + in_hand(shared)["a"] <= 11


async def test_a_refusal_calls_back_what_is_held_everywhere(workers: Workers) -> None:
    shared = budget(workers, 1000.0, 10)
    shared.ask("a", ask(1))
    shared.ask("b", ask(1))
    shared.note_made("b", made(1))
    shared.slow_down("b", refused("read", 1.0))
    shared.slow_down("b", refused("read", 1.0))
    shut = [worker for worker, message in workers.told if message == CallsShut("read")]
    assert shut[:1] == ["a"]
    assert "b" not in shut


# To whom.


async def test_workers_of_one_priority_take_turns(workers: Workers) -> None:
    shared = budget(workers, 200.0, 1)
    shared.ask("greedy", ask(1000))
    shared.ask("modest", ask(3))
    await until(lambda: workers.granted["modest"] == 3)
    assert workers.granted["greedy"] <= 6


async def test_status_shows_who_waits_for_what_since_when(workers: Workers) -> None:
    shared = budget(workers, 0.001, 2)
    shared.ask("node-0.1", ask(3, Priority.NODE_INIT))
    shared.ask("route.2", ask(1, Priority.ROUTE))
    status = shared.status(time.monotonic() + 5.0)["read"]
    assert status["queue"] == [
        {"worker": "node-0", "priority": "node-init", "calls": 1, "seconds": pytest.approx(5, 0.1)},
        {"worker": "route", "priority": "route", "calls": 1, "seconds": pytest.approx(5, 0.1)},
    ]
    assert status["granted_by_priority"] == {"node-init": 2}
    assert status["granted_by_worker"] == {"node-0": 2}
    assert status["waits"]["node-init"]["calls"] == 2


# How much.


async def test_a_reserve_is_left_to_others(workers: Workers) -> None:
    shared = Budget({}, workers.send, reserve=0.25)
    shared.declare({"read": [20.0, 40]})
    status = shared.status(time.monotonic())["read"]
    assert (status["full_per_second"], status["full_burst"]) == (15.0, 30.0)


async def test_a_flag_below_the_quota_lowers_the_burst_as_well(workers: Workers) -> None:
    status = budget(workers, 20.0, 40, read=5.0).status(time.monotonic())["read"]
    assert (status["full_per_second"], status["full_burst"]) == (5.0, 10.0)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
async def test_a_class_without_a_rate_is_never_granted(workers: Workers, rate: float) -> None:
    shared = budget(workers, rate, 10)
    shared.ask("a", ask(1))
    await let_run()
    assert workers.told == []
