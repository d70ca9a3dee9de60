"""Real worker processes hammer a cloud with a rate limit, and the cloud hardly notices.

What is measured is how much of the limit is used, so they run apart. A run takes 25 s each on a
machine at rest; `CCM_BUDGET_SECONDS=60` makes it the full minute. On a slow machine the limit is
lower, and all lasts the longer.
"""

import asyncio
import math
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bench.figures import percentile
from ccm.decide.budget import Priority
from ccm.model.objects import Json
from tests.support.deadlines import dilation
from tests.support.hammer import CallCounts, Hammers, Waits
from tests.support.running import Cloud, until

SECONDS = float(os.environ.get("CCM_BUDGET_SECONDS", "25"))
LEARNING = 10.0  # seconds that do not count
WORKERS = [f"worker-{number}" for number in range(5)]


pytestmark = pytest.mark.alone


@pytest.fixture
def times() -> int:
    """How many times longer all lasts."""
    return dilation()


@pytest.fixture
def limit(times: int) -> float:
    """Calls a second that the cloud takes."""
    return 20.0 / times


@pytest.fixture
def declared() -> float:
    """How many times the limit is said to be what it is."""
    return 1.0


@pytest.fixture
def cloud(limit: float, declared: float) -> Iterator[Cloud]:
    rate = ("--read-rate", f"{limit:g}:{math.ceil(limit)}")
    with (
        TemporaryDirectory(prefix="ccm-") as directory,  # short enough for a socket
        Cloud(Path(directory), *rate, read_rate=declared * limit) as cloud,
    ):
        yield cloud


@pytest.fixture
async def hammers(cloud: Cloud, times: int) -> AsyncIterator[Hammers]:
    hammers = Hammers(cloud.config, pause=2.0 * times)
    try:
        hammers.start(WORKERS)
        yield hammers
    finally:
        await hammers.close()


async def requests(cloud: Cloud) -> list[Json]:
    async with cloud.admin() as admin:
        return [call for call in await admin.requests() if call["budget"] == "read"]


async def first_call(cloud: Cloud) -> float:
    """When the cloud saw the first call (monotonic)."""
    first, *_ = await until("a first call", lambda: requests(cloud))
    return float(first["monotonic"])


async def sleep_until(moment: float) -> None:
    await asyncio.sleep(max(moment - time.monotonic(), 0.0))


@pytest.mark.parametrize("declared", [1.0, 5.0], ids=["as-declared", "a-fifth-of-it"])
async def test_five_workers_use_the_limit_and_are_hardly_ever_refused(
    cloud: Cloud, hammers: Hammers, limit: float, times: int
) -> None:
    began = await first_call(cloud)
    since, ended = began + LEARNING * times, began + SECONDS * times
    await sleep_until(ended)
    calls = CallCounts.between(await requests(cloud), since, ended)
    learning = CallCounts.between(await requests(cloud), began, since)
    waits = hammers.waits(since)
    print(f"\nthrottled {calls.throttled_share:.2%}, used {calls.use_of(limit):.1%}")
    print(f"while learning: {learning.throttled} of {learning.throttled + learning.accepted}")
    print(hammers.read())
    assert calls.throttled_share <= 0.01
    assert calls.use_of(limit) >= 0.9
    by_priority = percentiles_by_priority(waits)
    init, refresh = by_priority[Priority.NODE_INIT], by_priority[Priority.REFRESH]
    assert all(soon < late for soon, late in zip(init, refresh, strict=True))
    assert all(len(waits[name, priority]) >= 2 for name in WORKERS for priority in Priority)
    assert min(calls.callers[name] for name in WORKERS) >= calls.accepted / len(WORKERS) / 2


def percentiles_by_priority(waits: Waits) -> dict[Priority, list[float]]:
    """Median, 99th percentile and maximum of all workers' waits, printed as well."""
    found = {}
    for wanted in Priority:
        seconds = [s for (_, priority), w in waits.items() if priority is wanted for s in w]
        p50, p99, longest = found[wanted] = [
            percentile(seconds, share) for share in (0.5, 0.99, 1.0)
        ]
        line = f"{len(seconds):4} calls, p50 {p50:.3f} p99 {p99:.3f} max {longest:.3f}"
        print(f"{wanted.name:10} {line}")
    return found


async def test_a_worker_that_stops_or_dies_leaves_its_calls_to_the_others(
    cloud: Cloud, hammers: Hammers, limit: float, times: int
) -> None:
    def waiting(name: str) -> int:
        return int(hammers.read()["waiting"].get(name, 0))

    await sleep_until(await first_call(cloud) + 5.0 * times)
    stopped = time.monotonic()
    os.kill(hammers.processes["worker-0"].pid, signal.SIGSTOP)
    await sleep_until(stopped + 6.0 * times)
    woken = time.monotonic()
    os.kill(hammers.processes["worker-0"].pid, signal.SIGCONT)
    await sleep_until(woken + 3.0 * times)
    pending = await until("worker-1 waits", lambda: waiting("worker-1"))
    killed = time.monotonic()
    hammers.kill("worker-1")
    assert waiting("worker-1") == 0
    await sleep_until(killed + 5.0 * times)
    log = await requests(cloud)
    while_stopped = CallCounts.between(log, stopped, woken)
    afterwards = CallCounts.between(log, killed, killed + 5.0 * times)
    print(f"\nstopped: used {while_stopped.use_of(limit):.1%}")
    print(f"killed while {pending} calls waited: used {afterwards.use_of(limit):.1%}")
    assert while_stopped.use_of(limit) >= 0.9
    assert while_stopped.callers["worker-0"] <= 2
    assert CallCounts.between(log, woken, killed).callers["worker-0"] > 0
    assert afterwards.use_of(limit) >= 0.9
    assert afterwards.callers["worker-1"] <= 1
