"""Replicas that compete for one lease, work that never ends, and who wrote what when."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import UNINITIALIZED_TAINT, Json
from tests.kube.audit import AuditEntry
from tests.kube.cluster import RealCluster
from tests.proc.running import RULES, Supervisor, Where, is_alive

T = TypeVar("T")

NAMESPACE = "ccm-replicas"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


@dataclass(frozen=True, slots=True)
class Durations:
    """The three durations of an election, in seconds."""

    lease: float
    renew: float
    retry: float

    def flags(self) -> list[str]:
        return [
            f"--leader-elect-lease-duration={self.lease:g}s",
            f"--leader-elect-renew-deadline={self.renew:g}s",
            f"--leader-elect-retry-period={self.retry:g}s",
        ]


SHORT = Durations(5.0, 3.0, 0.5)
DEFAULT = Durations(15.0, 10.0, 2.0)


async def until(what: str, look: Callable[[], T | None], seconds: float = 30.0) -> T:
    """The first truthy result of `look`; fails the test when there is none in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if result := look():
            return result
        await asyncio.sleep(0.02)
    raise AssertionError(f"not within {seconds:g} s: {what}")


class Replica(Supervisor):
    """A supervisor with an identity of its own at the API server."""

    def __init__(self, name: str, stage: "Stage", *flags: str) -> None:
        account = f"{stage.lease}-{name}"
        kubeconfig = stage.cluster.service_account_kubeconfig(NAMESPACE, account, RULES)
        where = Where(stage.directory, kubeconfig, stage.cloud_config)
        elected = [*stage.durations.flags(), f"--leader-elect-resource-name={stage.lease}"]
        super().__init__(where, *elected, *flags, name=name)
        self.user = f"system:serviceaccount:{NAMESPACE}:{account}"
        self._frozen: list[int] = []

    def may_act(self) -> bool:
        return bool(self.status().get("leader", {}).get("is_leader"))

    def is_in(self, state: str) -> bool:
        workers = self.workers().values()
        return bool(workers) and all(worker["state"] == state for worker in workers)

    def worker_pids(self) -> list[int]:
        return [worker["pid"] for worker in self.workers().values()]

    def freeze(self, pids: Iterable[int]) -> None:
        self._frozen = list(pids)
        for pid in self._frozen:
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in self._frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._frozen = []

    def end(self, number: signal.Signals = signal.SIGTERM, seconds: float = 30.0) -> int:
        self.thaw()
        return super().end(number, seconds)


@dataclass
class Stage:
    """Where the replicas of one test meet; no two tests use the same name of a lease."""

    cluster: RealCluster
    directory: Path
    cloud_config: Path
    durations: Durations
    lease: str

    def lease_spec(self) -> Json:
        answer = self.cluster.request("GET", f"{LEASES}/{self.lease}")
        return dict(answer.expect().body["spec"])

    def history(self) -> "History":
        return History(list(self.cluster.audit()), self.lease)


@asynccontextmanager
async def churn(kube: Kube, names: list[str], gap: float) -> AsyncIterator[None]:
    """Taint one node after the other anew, every `gap` seconds, so that a leader always has work.

    Each node looks different each time, so a patch that was planned against an older one fails.
    """
    pairs = ((name, turn) for turn in range(10**9) for name in names)

    async def run() -> None:
        for name, turn in pairs:
            taint = {"key": UNINITIALIZED_TAINT, "value": f"turn-{turn}", "effect": "NoSchedule"}
            body = {"spec": {"taints": [taint]}}
            await asyncio.gather(
                kube.patch(f"/api/v1/nodes/{name}", MERGE_PATCH, body), asyncio.sleep(gap)
            )

    running = asyncio.create_task(run())
    try:
        yield
        assert not running.done(), "the taints ended before the test did"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def is_of_supervisor(user_agent: str) -> bool:
    return user_agent.endswith(("/supervisor", "/leader-election"))


@dataclass(frozen=True, slots=True)
class Done:
    """A write at the API server: who, when it came and when it was answered (wall clock)."""

    user: str
    came: float
    answered: float
    entry: AuditEntry


@dataclass(frozen=True, slots=True)
class Term:
    """One replica's hold of the lease, from its first accepted write of it to its last."""

    user: str
    taken: float
    last_written: float


class History:
    """What replicas wrote, according to the API server."""

    def __init__(self, entries: list[AuditEntry], lease: str) -> None:
        written = sorted(
            (_done(e) for e in entries if e.is_write and f"{NAMESPACE}:{lease}-" in e.user),
            key=lambda done: done.came,
        )
        self.lease_writes = [
            done
            for done in written
            if (done.entry.resource, done.entry.name) == ("leases", lease) and done.entry.code < 300
        ]
        # A supervisor writes nothing but its lease, and Events about that.
        self.work = [done for done in written if not is_of_supervisor(done.entry.user_agent)]

    def terms(self) -> list[Term]:
        terms: list[Term] = []
        for done in self.lease_writes:
            if terms and terms[-1].user == done.user:
                terms[-1] = Term(done.user, terms[-1].taken, done.answered)
            else:
                terms.append(Term(done.user, done.answered, done.answered))
        return terms

    def of(self, replica: Replica) -> list[Done]:
        return [done for done in self.work if done.user == replica.user]

    def strays(self) -> Iterator[str]:
        """Writes, refused ones too, of a replica that did not hold the lease all the while."""
        terms = self.terms()
        for done in self.work:
            mine = [
                (term, following)
                for term, following in pairwise([*terms, None])
                if term and term.user == done.user and term.taken <= done.came
            ]
            if not mine:
                yield f"{done.user} wrote {done.entry.uri} before it led"
            elif mine[-1][1] and done.answered > mine[-1][1].taken:
                late = done.answered - mine[-1][1].taken
                yield f"{done.user} wrote {done.entry.uri} {late:.3f} s after another led"


def _done(entry: AuditEntry) -> Done:
    came, answered = (
        datetime.fromisoformat(entry.raw[name]).timestamp()
        for name in ("requestReceivedTimestamp", "stageTimestamp")
    )
    return Done(entry.user, came, answered, entry)


async def all_gone(pids: Iterable[int], seconds: float) -> float:
    """Seconds until none of the processes was there any more."""
    pids, began = list(pids), time.monotonic()
    await until(f"{pids} are gone", lambda: not any(is_alive(pid) for pid in pids), seconds)
    return time.monotonic() - began
