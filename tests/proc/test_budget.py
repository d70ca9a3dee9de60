"""Real worker processes hammer a cloud with a rate limit, and the cloud hardly notices.

A run takes 25 s each; `CCM_BUDGET_SECONDS=60` makes it the full minute.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ccm.decide.budget import Priority
from ccm.model.objects import Json
from ccm.sandbox.cloud.client import CloudAdmin
from tests.proc.hammer import Hammers, Seen, Waits, percentiles
from tests.proc.running import Cloud

LIMIT = 20.0  # calls a second that the cloud takes
SECONDS = float(os.environ.get("CCM_BUDGET_SECONDS", "25"))
LEARNING = 10.0  # seconds that do not count
WORKERS = [f"worker-{number}" for number in range(5)]


@pytest.fixture
def directory() -> Iterator[Path]:
    """Short enough for a socket."""
    with TemporaryDirectory(prefix="ccm-") as name:
        yield Path(name)


@pytest.fixture
def declared() -> float:
    return LIMIT


@pytest.fixture
def cloud(directory: Path, declared: float) -> Iterator[Cloud]:
    with Cloud(directory, "--read-rate", f"{LIMIT:g}:{LIMIT:g}", read_rate=declared) as cloud:
        yield cloud


@pytest.fixture
async def hammers(directory: Path, cloud: Cloud) -> AsyncIterator[Hammers]:
    hammers = Hammers(directory, cloud.config)
    try:
        hammers.start(WORKERS)
        yield hammers
    finally:
        await hammers.close()


async def requests(cloud: Cloud) -> list[Json]:
    async with CloudAdmin(cloud.url) as admin:
        return [call for call in await admin.requests() if call["budget"] == "read"]


async def first_call(cloud: Cloud) -> float:
    """When the cloud saw the first call (monotonic)."""
    async with asyncio.timeout(30):
        while not (seen := await requests(cloud)):  # noqa: ASYNC110 - nobody announces it
            await asyncio.sleep(0.05)
    return float(seen[0]["monotonic"])


async def until(condition: Callable[[], object]) -> float:
    """When the condition came true."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nobody announces it
            await asyncio.sleep(0.01)
    return time.monotonic()


async def sleep_until(moment: float) -> None:
    await asyncio.sleep(max(moment - time.monotonic(), 0.0))


@pytest.mark.alone
@pytest.mark.parametrize("declared", [LIMIT, 5 * LIMIT], ids=["as-declared", "a-fifth-of-it"])
async def test_five_workers_use_the_limit_and_are_hardly_ever_refused(
    cloud: Cloud, hammers: Hammers
) -> None:
    began = await first_call(cloud)
    await sleep_until(began + SECONDS)
    since = began + LEARNING
    seen = Seen.between(await requests(cloud), since, began + SECONDS)
    learning = Seen.between(await requests(cloud), began, since)
    waits = hammers.waits(since)
    print(f"\nthrottled {seen.throttled_share:.2%}, used {seen.use_of(LIMIT):.1%}")
    print(f"while learning: {learning.throttled} of {learning.throttled + learning.accepted}")
    print(hammers.read())
    assert seen.throttled_share <= 0.01
    assert seen.use_of(LIMIT) >= 0.9
    by_priority = shown(waits)
    init, refresh = by_priority[Priority.NODE_INIT], by_priority[Priority.REFRESH]
    assert all(soon < late for soon, late in zip(init, refresh, strict=True))
    assert all(len(waits[name, priority]) >= 2 for name in WORKERS for priority in Priority)
    assert min(seen.callers[name] for name in WORKERS) >= seen.accepted / len(WORKERS) / 2


def shown(waits: Waits) -> dict[Priority, list[float]]:
    """The percentiles of all workers' waits by priority, printed as well."""
    found = {}
    for wanted in Priority:
        seconds = [s for (_, priority), w in waits.items() if priority is wanted for s in w]
        p50, p99, most = found[wanted] = list(percentiles(seconds))
        line = f"{len(seconds):4} calls, p50 {p50:.3f} p99 {p99:.3f} max {most:.3f}"
        print(f"{wanted.name:10} {line}")
    return found


async def test_a_worker_that_stops_or_dies_leaves_its_calls_to_the_others(
    cloud: Cloud, hammers: Hammers
) -> None:
    def waiting(name: str) -> int:
        return int(hammers.read()["waiting"].get(name, 0))

    await sleep_until(await first_call(cloud) + 5.0)
    stopped = time.monotonic()
    os.kill(hammers.processes["worker-0"].pid, signal.SIGSTOP)
    await sleep_until(stopped + 6.0)
    woken = time.monotonic()
    os.kill(hammers.processes["worker-0"].pid, signal.SIGCONT)
    await sleep_until(woken + 3.0)
    await until(lambda: waiting("worker-1"))
    asked = waiting("worker-1")
    killed = time.monotonic()
    hammers.kill("worker-1")
    assert waiting("worker-1") == 0
    await sleep_until(killed + 5.0)
    log = await requests(cloud)
    while_stopped = Seen.between(log, stopped, woken)
    afterwards = Seen.between(log, killed, killed + 5.0)
    print(f"\nstopped: used {while_stopped.use_of(LIMIT):.1%}")
    print(f"killed while {asked} calls waited: used {afterwards.use_of(LIMIT):.1%}")
    assert while_stopped.use_of(LIMIT) >= 0.9
    assert while_stopped.callers["worker-0"] <= 2
    assert Seen.between(log, woken, killed).callers["worker-0"] > 0
    assert afterwards.use_of(LIMIT) >= 0.9
    assert afterwards.callers["worker-1"] <= 1
