"""Replicas that compete for one lease, work that never ends, and who wrote what when."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count, pairwise

from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import UNINITIALIZED_TAINT
from tests.support.deadlines import dilation
from tests.support.environment import NODES, Environment
from tests.support.fault_proxy import FaultProxy
from tests.support.kube.audit import AuditEntry
from tests.support.running import RULES, Json, Supervisor, in_background, is_alive, until

NAMESPACE = "ccm-replicas"


@dataclass(frozen=True, slots=True)
class Durations:
    """The three durations of an election, in seconds."""

    lease: float
    renew: float
    retry: float

    @classmethod
    def short(cls) -> "Durations":
        """As short as a renewal can be counted on by this machine now."""
        times = dilation()
        return cls(5.0 * times, 3.0 * times, 0.5 * times)

    @property
    def grace(self) -> float:
        """What workers.main gives a worker to live on."""
        return (self.lease - self.renew) / 2

    def flags(self) -> list[str]:
        return [
            f"--leader-elect-lease-duration={self.lease:g}s",
            f"--leader-elect-renew-deadline={self.renew:g}s",
            f"--leader-elect-retry-period={self.retry:g}s",
        ]


DEFAULT = Durations(15.0, 10.0, 2.0)


@dataclass(frozen=True)
class Election:
    """What the replicas of one test compete for; no two tests use the same name of a lease.

    With a `proxy`, the replicas see the API server through it.
    """

    env: Environment
    lease: str
    durations: Durations = field(default_factory=Durations.short)
    proxy: FaultProxy | None = None

    async def events(self) -> list[Json]:
        """Those about its Lease."""
        found = (await self.env.api.get("/api/v1/namespaces/kube-system/events"))["items"]
        return [event for event in found if event["involvedObject"]["name"] == self.lease]

    def history(self) -> "History":
        return History(list(self.env.cluster.audit()), self.lease)


class Replica(Supervisor):
    """A supervisor with an identity of its own at the API server."""

    def __init__(self, name: str, election: Election, *flags: str) -> None:
        account = f"{election.lease}-{name}"
        cluster, where = election.env.cluster, election.env.where
        kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, account, RULES)
        if election.proxy:
            kubeconfig = election.proxy.kubeconfig(kubeconfig)
        elected = (*election.durations.flags(), f"--leader-elect-resource-name={election.lease}")
        super().__init__(replace(where, kubeconfig=kubeconfig), *elected, *flags, name=name)
        self.user = f"system:serviceaccount:{NAMESPACE}:{account}"
        self._stopped: list[int] = []

    def stop(self, pids: Iterable[int]) -> None:
        """SIGSTOP these processes of it until `resume`, or its end."""
        self._stopped = list(pids)
        for pid in self._stopped:
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in self._stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._stopped = []

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.resume()
        return super().end(number)


@asynccontextmanager
async def churn(kube: Kube, names: list[str], gap: float) -> AsyncIterator[None]:
    """Taint one node after the other again, every `gap` seconds, so that a leader always has work.

    Each node looks different each time, so a patch that was planned against an older one fails.
    """

    async def taint_all() -> None:
        for name, turn in ((name, turn) for turn in count() for name in names):
            await asyncio.gather(taint(kube, name, turn), asyncio.sleep(gap))

    async with in_background(taint_all()) as tainting:
        yield
        assert not tainting.done(), "the taints ended before the test did"


async def taint(kube: Kube, name: str, turn: int) -> None:
    """The node is uninitialized again."""
    wanted = {"key": UNINITIALIZED_TAINT, "value": f"turn-{turn}", "effect": "NoSchedule"}
    await kube.patch(f"{NODES}/{name}", MERGE_PATCH, {"spec": {"taints": [wanted]}})


@dataclass(frozen=True, slots=True)
class Write:
    """A write at the API server: by whom, when received and when answered (wall clock)."""

    user: str
    received: float
    answered: float
    entry: AuditEntry


@dataclass(frozen=True, slots=True)
class Term:
    """One replica's hold of the lease: its first write of it is answered, its last received."""

    user: str
    taken: float
    last_written: float


class History:
    """What replicas wrote, according to the API server."""

    def __init__(self, entries: list[AuditEntry], lease: str) -> None:
        writes = [_write(e) for e in entries if e.is_write and f"{NAMESPACE}:{lease}-" in e.user]
        writes.sort(key=lambda write: write.received)
        self.lease_writes = [
            write
            for write in writes
            if (write.entry.resource, write.entry.name) == ("leases", lease)
            and write.entry.code < 300
            and write.entry.user_agent.endswith("/leader-election")  # not a freeze of deletions
        ]
        # A supervisor writes nothing but its lease, and Events about that.
        own = ("/supervisor", "/leader-election")
        self.work = [write for write in writes if not write.entry.user_agent.endswith(own)]

    def terms(self) -> list[Term]:
        terms: list[Term] = []
        for write in self.lease_writes:
            if terms and terms[-1].user == write.user:
                terms[-1] = Term(write.user, terms[-1].taken, write.received)
            else:
                terms.append(Term(write.user, write.answered, write.received))
        return terms

    def of(self, replica: Replica) -> list[Write]:
        return [write for write in self.work if write.user == replica.user]

    def strays(self) -> Iterator[str]:
        """Writes, refused ones too, of a replica that did not hold the lease all the while."""
        terms = self.terms()
        for write in self.work:
            mine = [
                (term, following)
                for term, following in pairwise([*terms, None])
                if term and term.user == write.user and term.taken <= write.received
            ]
            if not mine:
                yield f"{write.user} wrote {write.entry.uri} before it led"
            elif mine[-1][1] and write.answered > mine[-1][1].taken:
                late = write.answered - mine[-1][1].taken
                yield f"{write.user} wrote {write.entry.uri} {late:.3f} s after another led"


def _write(entry: AuditEntry) -> Write:
    received, answered = (
        datetime.fromisoformat(entry.raw[name]).timestamp()
        for name in ("requestReceivedTimestamp", "stageTimestamp")
    )
    return Write(entry.user, received, answered, entry)


SOON = 2.0
"""Seconds within which what the kernel ends is gone: the time of a lease is much longer."""


async def all_gone(pids: Iterable[int]) -> float:
    """Seconds until none of the processes was there any more."""
    pids, began = list(pids), time.monotonic()
    await until(f"{pids} are gone", lambda: not any(is_alive(pid) for pid in pids), SOON)
    return time.monotonic() - began
