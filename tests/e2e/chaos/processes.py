"""The supervisors of a life: killed, stopped and started again, as systemd does it."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Self

from ccm.bus.control import NotRunning, ask
from tests.e2e.chaos.kubelets import CLUSTER_CIDR
from tests.support.cluster_nodes import kill
from tests.support.deadlines import timeout
from tests.support.replicas import Durations
from tests.support.running import Json, Supervisor, Where, until

WORKERS = ("node-0", "route", "service", "volume-label")
FLAGS = (
    "--controllers=*",
    f"--cluster-cidr={CLUSTER_CIDR}",
    "--cloud-rate=write=200",
    "--node-monitor-period=1s",
    "--node-deletion-confirmation-period=0",
    # That deletions are few and doubted is tested elsewhere; here machines end as they like.
    "--node-deletion-limit=1000",
    "--node-vanish-share=1",
    "--worker-steady-time=10ms",
)


def started(where: Where) -> Callable[[str], Supervisor]:
    """What starts a replica of this name."""
    elected = Durations.short().flags()
    return lambda name: Supervisor(where, *FLAGS, *elected, name=name)


class Processes:
    """Replicas of the supervisor, by name; one that ended is started again by `keep`."""

    def __init__(self, start: Callable[[str], Supervisor], replicas: int) -> None:
        self._start = start
        self._suspended: dict[asyncio.Task[None], list[int]] = {}
        names = [f"replica-{number}" for number in range(replicas)]
        self._replicas = {name: self._start(name) for name in names}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pids in self._suspended.values():
            _signal(pids, signal.SIGCONT)
        for replica in self._replicas.values():
            replica.end()

    def keep(self) -> None:
        for name, replica in self._replicas.items():
            if replica.process.poll() is not None:
                self._replicas[name] = self._start(name)

    async def fail_over(self) -> None:
        """One replica more stands by; then the leader ends in order, and for good."""
        [(name, leader)] = self._replicas.items()
        standby = self._replicas["standby"] = self._start("standby")
        await until("it stands by", lambda: standby.is_in("standby"))
        del self._replicas[name]
        assert await asyncio.to_thread(leader.end) == 0

    def leader_name(self) -> str:
        """The leader's, or that of some replica while none leads."""
        leader = self._leader()[0]
        return next((name for name, one in self._replicas.items() if one is leader), "replica-0")

    async def reload(self) -> bool:
        """Have every replica read its configuration again; whether all of them took it."""
        answers = await asyncio.gather(
            *(
                asyncio.to_thread(_ask, replica, timeout(75.0), command="reload")
                for replica in self._replicas.values()
            )
        )
        return all("ok" in answer for answer in answers)

    def logs(self) -> Iterator[str]:
        """The last lines of each replica's log, but for those about the election."""
        for name, replica in self._replicas.items():
            lines = [line for line in replica.tail(400).splitlines() if "election" not in line]
            yield from (f"{name}: {line}" for line in lines[-40:])

    def status(self) -> Json:
        """The status of the leader; empty while nobody leads."""
        return self._leader()[1]

    def workers(self) -> dict[str, Json]:
        """The workers of the leader, by name; none while nobody leads."""
        return {worker["name"]: worker for worker in self.status().get("workers", ())}

    def pids(self) -> dict[str, int]:
        """The processes of the leader, by name."""
        leader, _ = self._leader()
        return {"supervisor": leader.process.pid, **leader.pids()} if leader else {}

    async def kill(self, worker: str) -> None:
        """Kill a worker of the leader, if it is there at the moment."""
        if pid := self.workers().get(worker, {}).get("pid"):
            with suppress(ProcessLookupError):
                kill(pid)

    async def restart(self, worker: str) -> None:
        """Have a worker hand over to a new one; not, if that cannot be at the moment."""
        if leader := self._leader()[0]:
            _ask(leader, command="restart", worker=worker)

    async def suspend(self, what: str, seconds: float) -> None:
        """Stop processes of the leader for a while: the `supervisor`, `all`, or one worker."""
        leader, status = self._leader()
        if not leader:
            return
        pids = {worker["name"]: worker["pid"] for worker in status["workers"] if worker["pid"]}
        parent = leader.process.pid
        chosen = {"supervisor": [parent], "all": [*pids.values(), parent]}
        stopped = chosen.get(what) or [pids[name] for name in pids if name == what]
        _signal(stopped, signal.SIGSTOP)
        task = asyncio.create_task(_resume(stopped, seconds))
        self._suspended[task] = stopped
        task.add_done_callback(self._suspended.pop)

    async def scale(self, count: int) -> None:
        """Divide the Nodes among so many workers of the leader."""
        if leader := self._leader()[0]:
            await asyncio.to_thread(_ask, leader, command="scale", count=count)

    async def deletions(self, action: str) -> None:
        """Have the leader `freeze` or `allow` the deletion of Nodes."""
        if leader := self._leader()[0]:
            _ask(leader, command="deletions", action=action)

    async def rest(self) -> None:
        """Wake what is stopped, and allow deletions."""
        await asyncio.gather(*self._suspended)

        def is_allowed() -> bool:
            replicas = self._replicas.values()
            return any("ok" in _ask(each, command="deletions", action="allow") for each in replicas)

        await until("deletions are allowed", is_allowed)

    async def replace(self, name: str) -> None:
        """Send the leader, or else some replica, a signal that ends it."""
        replica = self._leader()[0] or next(iter(self._replicas.values()))
        if replica.process.poll() is None:  # it may end at this moment
            _signal([replica.process.pid], signal.Signals[name])

    def _leader(self) -> tuple[Supervisor | None, Json]:
        for replica in self._replicas.values():
            status = _ask(replica, command="status")
            if status.get("leader", {}).get("is_leader"):
                return replica, status
        return None, {}


async def _resume(pids: Iterable[int], seconds: float) -> None:
    await asyncio.sleep(seconds)  # the fault, not a wait
    _signal(pids, signal.SIGCONT)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    """Send it to those that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _ask(replica: Supervisor, wait: float = 0.0, **request: object) -> Json:
    """The replica's answer; empty while it gives none, as one that is stopped."""
    try:
        return ask(replica.control, request, wait or timeout(1.0))
    except NotRunning:
        return {}
