"""The one cloud budget of all workers, as they see it."""

import asyncio
import time
from collections import Counter

import pytest

from ccm.bus.frames import CloudRemaining, CloudThrottled, Granted, GrantRequest, Message
from ccm.decide.budget import Priority
from ccm.model.status import BudgetStatus
from ccm.supervisor.budget import UNHEARD_RETRY, Budget
from tests.support.waiting import let_run, until

pytestmark = pytest.mark.virtual_time


class Workers:
    """What each worker was granted, in order; some may hang, or take no message."""

    def __init__(self) -> None:
        self.grants: list[tuple[str, Granted]] = []
        self.hanging: set[str] = set()
        self.full: set[str] = set()
        self.tries, self.looks = 0, 0

    def send(self, worker: str, message: Message) -> bool:
        assert isinstance(message, Granted)
        self.tries += 1
        if worker in self.full:
            return False
        self.grants.append((worker, message))
        return True

    def is_responsive(self, worker: str) -> bool:
        self.looks += 1
        return worker not in self.hanging

    @property
    def granted(self) -> Counter[str]:
        return Counter(worker for worker, _ in self.grants)


class Shared(Budget):
    """A budget that declares a class of reads, and asks for many calls in a row."""

    def __init__(
        self,
        workers: Workers,
        per_second: float,
        burst: float,
        reserve: float = 0.0,
        unheard_retry: float = UNHEARD_RETRY,
        **rates: float,
    ) -> None:
        super().__init__(rates, workers.send, workers.is_responsive, reserve, unheard_retry)
        self.declare({"read": [per_second, burst]})

    def ask(
        self, worker: str, count: int = 1, priority: Priority = Priority.ROUTE, budget: str = "read"
    ) -> None:
        for number in range(count):
            self.request(worker, GrantRequest(number, budget, int(priority)))

    def refuse(self, seconds: float | None, budget: str = "read") -> None:
        """The cloud refused a call of worker "a" that was granted just now."""
        self.slow_down("a", CloudThrottled(budget, seconds, time.monotonic()))

    def shown(self, budget: str = "read", later: float = 0.0) -> BudgetStatus:
        """What `status` shows of a class; `later` seconds from now."""
        return self.status(time.monotonic() + later)[budget]


@pytest.fixture
def workers() -> Workers:
    return Workers()


# What the cloud says is left.


async def test_what_is_left_goes_to_what_is_most_urgent(
    workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    """Others spend from the same account: three calls are left, and ten are asked for."""
    shared = Shared(workers, 0.001, 100)
    workers.hanging.update({"lists", "deletions"})
    shared.ask("lists", 5, Priority.REFRESH)
    shared.ask("deletions", 2, Priority.LB_DELETE)
    workers.hanging.clear()
    shared.limit(CloudRemaining("read", 3, 600.0))
    assert workers.granted == {"deletions": 2, "lists": 1}
    shared.limit(CloudRemaining("read", 0, 600.0))
    shared.limit(CloudRemaining("read", 0, 599.0))
    assert shared.shown()["state"] == "open"
    reported = [one.getMessage() for one in caplog.records]
    assert reported.count("the cloud has no calls left for this account; all workers wait") == 1
    shared.limit(CloudRemaining("unknown", 0, 1.0))


async def test_the_reserve_counts_of_what_is_left_as_well(workers: Workers) -> None:
    shared = Shared(workers, 0.001, 100, reserve=0.5)
    shared.limit(CloudRemaining("read", 4, 600.0))
    shared.ask("a", 5)
    assert workers.granted == {"a": 2}


async def test_thousands_of_calls_that_wait_are_not_looked_at_for_each_that_comes(
    workers: Workers,
) -> None:
    """Else the supervisor has no time for the Lease."""
    shared = Shared(workers, 0.001, 1)
    shared.ask("a", 3_000)
    assert workers.looks < 10
    assert shared.shown()["waiting"] == {"a": 2_999}
    await asyncio.sleep(1001.0)
    assert workers.looks < 20


# How much.


async def test_what_is_in_the_bucket_is_granted_at_once(workers: Workers) -> None:
    shared = Shared(workers, 0.001, 5)
    shared.request("node-0", GrantRequest(7, "read", int(Priority.ROUTE)))
    ((worker, message),) = workers.grants
    assert (worker, message.number) == ("node-0", 7)
    assert message.at == pytest.approx(time.monotonic(), abs=1e-3)


@pytest.mark.parametrize(
    ("reserve", "rates", "expected"),
    [
        pytest.param(0.0, {}, (20.0, 40.0), id="as-declared"),
        pytest.param(0.0, {"read": 40.0}, (40.0, 40.0), id="a-flag-replaces-the-providers-rate"),
        pytest.param(0.0, {"read": 5.0}, (5.0, 10.0), id="a-lower-one-lowers-the-burst-as-well"),
        pytest.param(0.25, {}, (15.0, 30.0), id="a-reserve-is-left-to-others"),
    ],
)
async def test_what_a_class_may_spend(
    workers: Workers, reserve: float, rates: dict[str, float], expected: tuple[float, float]
) -> None:
    status = Shared(workers, 20.0, 40, reserve, **rates).shown()
    assert (status["full_per_second"], status["full_burst"]) == expected


async def test_the_first_report_of_the_quotas_counts(workers: Workers) -> None:
    shared = Shared(workers, 0.001, 5)
    shared.ask("a", 5)
    shared.declare({"read": [0.001, 5], "write": [0.001, 1]})
    shared.ask("a")
    shared.ask("b", budget="write")
    assert workers.granted == {"a": 5, "b": 1}


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
async def test_a_class_without_a_rate_is_never_granted(workers: Workers, rate: float) -> None:
    Shared(workers, rate, 10).ask("a")
    await let_run()
    assert workers.grants == []


async def test_an_unknown_class_gets_nothing_and_says_so(
    workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    shared = Shared(workers, 1000.0, 10)
    shared.ask("a", budget="nonsense")
    shared.refuse(1.0, "nonsense")
    shared.ask("b", 3, budget="nonsense")
    await let_run()
    assert workers.grants == []
    assert len(caplog.messages) == 1
    assert "unknown budget class" in caplog.messages[0]
    status = shared.shown("nonsense")
    assert (status["state"], status["waiting"]) == ("unknown class", {"a": 1, "b": 3})
    shared.declare({"nonsense": [0.001, 4]})  # a provider that declares it later
    assert workers.granted == {"a": 1, "b": 3}


async def test_a_throttled_worker_slows_all_workers(workers: Workers) -> None:
    shared = Shared(workers, 1000.0, 1000)
    shared.refuse(0.1)
    shared.ask("b")
    await let_run()
    assert workers.grants == []
    assert shared.shown()["per_second"] < 510.0
    began = time.monotonic()
    await until(lambda: workers.granted["b"] == 1)
    assert time.monotonic() - began == pytest.approx(0.1, abs=0.01)


async def test_classes_are_throttled_apart(workers: Workers) -> None:
    shared = Shared(workers, 1000.0, 10)
    shared.declare({"write": [1000.0, 10]})
    shared.refuse(60.0, "write")
    shared.ask("a")
    assert workers.granted == {"a": 1}
    assert (shared.shown("write")["state"], shared.shown()["throttled"]) == ("open", 0)


# To whom.


async def test_what_no_one_waits_for_any_more_is_forgotten(workers: Workers) -> None:
    budget = Budget({}, workers.send, workers.is_responsive, grant_wait=0.05)
    budget.request("a", GrantRequest(1, "read", int(Priority.ROUTE)))
    budget.request("a", GrantRequest(1, "unknown", int(Priority.ROUTE)))
    await asyncio.sleep(0.1)  # longer than a call waits
    budget.request("a", GrantRequest(2, "unknown", int(Priority.ROUTE)))
    budget.declare({"read": [1000.0, 10.0]})
    assert workers.grants == []
    assert [budget.status(time.monotonic())[name]["waiting"] for name in ("read", "unknown")] == [
        {},
        {"a": 1},
    ]


@pytest.mark.parametrize("trouble", ["hanging", "full"])
async def test_a_worker_that_hangs_or_takes_no_message_keeps_its_place_but_gets_no_grant(
    workers: Workers, trouble: str
) -> None:
    """Its tokens go to others, however urgent its own calls are, until it is heard of again."""
    in_trouble: set[str] = getattr(workers, trouble)
    in_trouble.add("deaf")
    shared = Shared(workers, 0.001, 3, unheard_retry=0.01)
    shared.ask("deaf", 5, Priority.NODE_INIT)
    shared.ask("there", 2)
    assert workers.granted == {"there": 2}
    assert shared.shown()["waiting"] == {"deaf": 5}
    await asyncio.sleep(0.05)  # several looks at it
    assert workers.granted == {"there": 2}
    in_trouble.clear()
    await until(lambda: workers.granted["deaf"] == 1)
    assert shared.shown()["waiting"] == {"deaf": 4}


async def test_a_worker_that_takes_no_message_is_not_tried_all_the_time(workers: Workers) -> None:
    workers.full.add("full")
    Shared(workers, 1000.0, 10).ask("full", 2)
    before = workers.tries
    await asyncio.sleep(0.05)
    assert workers.tries == before


# What is shown.


async def test_status_shows_who_waits_for_what_since_when(workers: Workers) -> None:
    shared = Shared(workers, 0.001, 2)
    shared.ask("node-0.1", 4, Priority.NODE_INIT)
    shared.ask("route.2", 1, Priority.ROUTE)
    status = shared.shown(later=5.0)
    assert status["queue"] == [
        {"worker": "node-0", "priority": "node-init", "calls": 2, "seconds": pytest.approx(5, 0.1)},
        {"worker": "route", "priority": "route", "calls": 1, "seconds": pytest.approx(5, 0.1)},
    ]
    assert (status["granted"], status["throttled"], status["waiting"]) == (
        2,
        0,
        {"node-0": 2, "route": 1},
    )
    assert status["granted_by_priority"] == {"node-init": 2}
    assert status["granted_by_worker"] == {"node-0": 2}


async def test_waits_are_counted_by_class_and_priority(workers: Workers) -> None:
    shared = Shared(workers, 20.0, 1)
    shared.ask("node-0.1", 2, Priority.NODE_INIT)
    shared.ask("route.2", 1, Priority.ROUTE)
    await until(lambda: len(workers.grants) == 3)
    waits = shared.shown()["waits"]
    assert {priority: entry["calls"] for priority, entry in waits.items()} == {
        "node-init": 2,
        "route": 1,
    }
    init, route = waits["node-init"], waits["route"]
    assert init["p50"] < 0.04 <= init["longest"] < route["longest"]
    assert init["seconds"] == pytest.approx(init["p50"] + init["longest"], abs=0.003)
    counted = {(name, priority): sum(h.counts) for name, priority, h in shared.waits()}
    assert counted == {("read", "node-init"): 2, ("read", "route"): 1}
