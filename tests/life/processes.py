"""The supervisors of a life: killed, stopped and started again, as systemd does it."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Self

from ccm.bus.control import NotRunning, ask
from tests.life.kubelets import CLUSTER_CIDR
from tests.proc.cluster_nodes import kill
from tests.proc.replicas import SHORT
from tests.proc.running import Json, Supervisor, Where, until

WORKERS = ("node-0", "route", "service", "volume-label")
FLAGS = (
    "--controllers=*",
    f"--cluster-cidr={CLUSTER_CIDR}",
    "--cloud-rate=write=200",
    "--node-monitor-period=1s",
    # That deletions are few and doubted is tested elsewhere; here machines end as they like.
    "--node-deletion-limit=1000",
    "--node-vanish-share=1",
    "--worker-steady-time=10ms",
    *SHORT.flags(),
)


class Processes:
    """Replicas of the supervisor, by name; one that ended is started again by `keep`."""

    def __init__(self, where: Where, replicas: int) -> None:
        self._where = where
        names = [f"replica-{number}" for number in range(replicas)]
        self._replicas = {name: self._start(name) for name in names}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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

    def logs(self) -> Iterator[str]:
        """The last lines of each replica's log, but for those about the election."""
        for name, replica in self._replicas.items():
            lines = [line for line in replica.tail(400).splitlines() if "election" not in line]
            yield from (f"{name}: {line}" for line in lines[-40:])

    def workers(self) -> dict[str, Json]:
        """The workers of the leader, by name; none while nobody leads."""
        return {worker["name"]: worker for worker in self._leader()[1].get("workers", ())}

    async def kill(self, worker: str) -> None:
        """Kill a worker of the leader, if it is there at the moment."""
        if pid := self.workers().get(worker, {}).get("pid"):
            with suppress(ProcessLookupError):
                kill(pid)

    async def restart(self, worker: str) -> None:
        """Have a worker hand over to a new one; not, if that cannot be at the moment."""
        if leader := self._leader()[0]:
            _ask(leader, command="restart", worker=worker)

    async def replace(self, name: str) -> None:
        """Send the leader, or else some replica, a signal that ends it."""
        replica = self._leader()[0] or next(iter(self._replicas.values()))
        if replica.process.poll() is None:
            os.kill(replica.process.pid, signal.Signals[name])

    def _leader(self) -> tuple[Supervisor | None, Json]:
        for replica in self._replicas.values():
            status = _ask(replica, command="status")
            if status.get("leader", {}).get("is_leader"):
                return replica, status
        return None, {}

    def _start(self, name: str) -> Supervisor:
        return Supervisor(self._where, *FLAGS, name=name)


def _ask(replica: Supervisor, **request: object) -> Json:
    """The replica's answer; empty while it gives none."""
    try:
        return ask(replica.control, request, 2.0)
    except NotRunning:
        return {}
