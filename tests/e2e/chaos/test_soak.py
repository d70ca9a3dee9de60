"""Half an hour of churn: no process grows, in memory, descriptors, threads or tasks."""

import asyncio
import os
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median

import pytest

from ccm.processes import PAGE_SIZE
from tests.e2e.chaos.life import Life
from tests.support.running import Json, in_background, long

SECONDS = float(os.environ.get("CCM_SOAK_SECONDS", "1800"))
SETTLED = SECONDS / 3  # seconds after which nothing grows any more
WINDOW = SECONDS / 15  # seconds of samples, of which the median counts
SAMPLE_INTERVAL = SECONDS / 180
NODES, SERVICES = 40, 15
STEP = 0.3  # seconds between two changes
LIMITS = {"memory_mib": 5.0, "descriptors": 3, "threads": 3, "tasks": 8}  # by which each may grow
RECOVERY_TIMEOUT = 120.0

pytestmark = [pytest.mark.real, pytest.mark.timeout(SECONDS + 600), long]


@dataclass(frozen=True, slots=True)
class Sample:
    """What one process has at a moment; `tasks` are those of its event loop."""

    at: float
    memory_mib: float
    descriptors: int
    threads: int
    tasks: int

    @classmethod
    def of(cls, pid: int, tasks: int) -> "Sample":
        process = Path(f"/proc/{pid}")
        pages = int((process / "statm").read_text().split()[1])
        return cls(
            time.monotonic(),
            pages * PAGE_SIZE / 2**20,
            len(list((process / "fd").iterdir())),
            len(list((process / "task").iterdir())),
            tasks,
        )


async def test_under_churn_no_process_grows(life: Life) -> None:
    began = time.monotonic()
    samples: defaultdict[str, list[Sample]] = defaultdict(list)
    async with in_background(churn(life)) as churning:
        await asyncio.sleep(SECONDS / 60)
        pids = life.processes.pids()
        while time.monotonic() < began + SECONDS:
            assert not churning.done(), churning.result()
            status = life.processes.status()
            for name, tasks in tasks_of(status).items():
                samples[name].append(Sample.of(pids[name], tasks))
            await asyncio.sleep(SAMPLE_INTERVAL)
    grown = [line for name, taken in samples.items() for line in growth(name, taken, began)]
    assert life.processes.pids() == pids, "a process ended"
    assert grown == []
    await life.until_done(RECOVERY_TIMEOUT)


def tasks_of(status: Json) -> dict[str, int]:
    """Tasks of each process, by its name."""
    workers = {worker["name"]: worker["tasks"] for worker in status["workers"]}
    return {"supervisor": status["tasks"], **workers}


def growth(name: str, samples: list[Sample], began: float) -> list[str]:
    """What grew between the time when all had settled and the end; prints the figures."""
    first = [s for s in samples if 0 <= s.at - began - SETTLED < WINDOW]
    last = [s for s in samples if s.at > began + SECONDS - WINDOW]
    found = []
    for what, most in LIMITS.items():
        before, after = (median(getattr(s, what) for s in part) for part in (first, last))
        line = f"{name}: {what} {before:.1f} → {after:.1f}"
        print(line)
        if after - before > most:
            found.append(line)
    return found


async def churn(life: Life) -> None:
    """As many nodes and Services as before, and always others: the oldest goes, a new one comes.

    The first nodes come at once, so that pools of threads and connections are as large as they get.
    """
    for number in count():
        await life.nodes.join(f"vm-{number}", 1 + number % 4000)
        if number >= NODES:
            await life.nodes.leave(f"vm-{number - NODES}", node_first=number % 2 == 0)
        if number % 3 == 0:
            await life.users.ask(f"web-{number // 3}", {"ports": [[80, "TCP"]]}, {})
            await life.users.drop(f"web-{number // 3 - SERVICES}")
        if number >= NODES:
            await asyncio.sleep(STEP)
