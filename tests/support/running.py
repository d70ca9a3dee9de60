"""The real things of process tests, cloud and supervisor as processes, and waiting for them."""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar, overload

import pytest

from ccm.bus.control import NotRunning, ask
from ccm.manifests.rbac import subjects
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.service import TOKEN
from ccm.settings import Settings
from tests.support import deadlines
from tests.support.deadlines import PATIENCE, Deadline
from tests.support.preloaded import Forked, can_be_forked

T = TypeVar("T")
Json = dict[str, Any]

IS_LONG = bool(os.environ.get("CCM_LONG"))
"""Whether tests run at the sizes and for the times that nobody waits for at a desk."""
WITH_LONG = "takes minutes: set CCM_LONG=1"
long = pytest.mark.skipif(not IS_LONG, reason=WITH_LONG)

RULES = [
    {"apiGroups": [rule.group], "resources": [rule.resource], "verbs": [*rule.verbs]}
    for rule in subjects(Settings(), "kube-system")[0].rules
]
"""What docs/permissions.md says that the supervisor and its workers need."""

NODES_ONLY = "--controllers=cloud-node,cloud-node-lifecycle"
"""What a supervisor here runs unless its flags say otherwise."""

ALL_CONTROLLERS = ("--controllers=*", "--cluster-cidr=10.240.0.0/12", "--cloud-rate=write=200")


def steady_lease() -> tuple[str, str]:
    """So long a lease that no leader loses it because the machine is busy; at rest the default."""
    times = deadlines.dilation()
    return (
        f"--leader-elect-lease-duration={15 * times}s",
        f"--leader-elect-renew-deadline={10 * times}s",
    )


def wait_for(what: str, condition: Callable[[], T | None], timeout: float = PATIENCE) -> T:
    """The first truthy result of `condition`; fails the test when there is none in time."""
    deadline = Deadline(timeout)
    while not deadline.has_passed():
        if result := condition():
            return result
        time.sleep(deadline.pause())
    raise AssertionError(f"not within {deadline}: {what}")


@overload
async def until(what: str, condition: Callable[[], Awaitable[T]], timeout: float = ...) -> T: ...
@overload
async def until(what: str, condition: Callable[[], T | None], timeout: float = ...) -> T: ...
async def until(what: str, condition: Callable[[], Any], timeout: float = PATIENCE) -> Any:
    """`wait_for` beside this loop, which goes on; what `condition` returns may be awaited."""
    deadline = Deadline(timeout)
    while not deadline.has_passed():
        is_async = inspect.iscoroutinefunction(condition)
        result = condition() if is_async else await asyncio.to_thread(condition)
        if done := await result if inspect.isawaitable(result) else result:
            return done
        await asyncio.sleep(deadline.pause())
    raise AssertionError(f"not within {deadline}: {what}")


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, object]) -> AsyncIterator[asyncio.Task[object]]:
    """`work` goes on during the block and is cancelled at its end."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until_none(
    what: str, find: Callable[[], Awaitable[Collection[object]]], timeout: float = PATIENCE
) -> None:
    """Until `find` finds nothing any more; what it found last is told when it does not."""
    deadline = Deadline(timeout)
    while found := await find():
        assert not deadline.has_passed(), "\n".join([f"still {what}:", *map(str, found)])
        await asyncio.sleep(0.1)


class Running:
    """One process with a log file; it is ended at the end of the `with` block."""

    def __init__(self, name: str, directory: Path, arguments: list[str]) -> None:
        self.log = directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | Forked
        command = self.command(arguments)
        if can_be_forked(command):
            self.process = Forked(command[2], command[3:], self.log)
            return
        with open(self.log, "ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)

    def command(self, arguments: list[str]) -> list[str]:
        """What is executed to run a module with its arguments."""
        return [sys.executable, "-m", *arguments]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.exit_code()

    def exit_code(self) -> int:
        """Wait for its end."""
        try:
            return self.process.wait(deadlines.timeout())
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"did not end: {self.tail()}") from None

    def tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Cloud(Running):
    """The simulated cloud as a process, and the provider's configuration for it."""

    def __init__(self, directory: Path, *flags: str, read_rate: float = 200.0) -> None:
        url_file = directory / "cloud.url"
        super().__init__(
            "cloud", directory, ["ccm.sandbox.cloud", "--url-file", str(url_file), *flags]
        )
        try:
            wait_for("the cloud listens", url_file.exists)
        except BaseException:
            self.end()
            raise
        self.url = url_file.read_text().strip()
        self.config = directory / "cloud.conf"
        self.config.write_text(
            f"[Global]\nurl = {self.url}\ntoken = {TOKEN}\nread-rate = {read_rate:g}\n"
        )

    def admin(self) -> CloudAdmin:
        """A client of the test's own."""
        return CloudAdmin(self.url, deadlines.timeout())


@dataclass(frozen=True, slots=True)
class Where:
    """What a supervisor is pointed at."""

    directory: Path
    kubeconfig: Path
    cloud_config: Path

    @property
    def flags(self) -> list[str]:
        return [
            "--cloud-provider=simulated",
            f"--cloud-config={self.cloud_config}",
            f"--kubeconfig={self.kubeconfig}",
        ]


class Controlled(Running):
    """A supervisor, which is asked through the socket in its directory `runtime` how it is."""

    runtime: Path

    @property
    def control(self) -> Path:
        return self.runtime / "control.sock"

    def status(self) -> Json:
        """Its status; empty while it does not answer."""
        try:
            return ask(self.control, {"command": "status"}, deadlines.timeout())
        except NotRunning:
            if self.process.poll() is not None:
                raise AssertionError(f"the supervisor ended: {self.tail()}") from None
            return {}

    def workers(self) -> dict[str, Json]:
        return {worker["name"]: worker for worker in self.status().get("workers", [])}

    def pids(self) -> dict[str, int]:
        """The processes of the workers, by name."""
        return {name: worker["pid"] for name, worker in self.workers().items()}

    def is_leading(self) -> bool:
        return bool(self.status().get("leader", {}).get("is_leader"))

    def is_replaced(self, worker: str, old_pid: int) -> bool:
        """Whether another process than the old one runs as this worker."""
        status = self.workers().get(worker, {})
        return status.get("state") == "running" and status["pid"] != old_pid


class Supervisor(Controlled):
    """A supervisor started as a user would."""

    def __init__(self, where: Where, *flags: str, name: str = "supervisor") -> None:
        self.runtime = where.directory / f"run-{name}"
        super().__init__(
            name,
            where.directory,
            [
                "ccm.cli.main",
                "start",
                *where.flags,
                f"--runtime-dir={self.runtime}",
                NODES_ONLY,
                "--secure-port=0",
                *steady_lease(),
                *flags,
            ],
        )

    def wait_running(self, timeout: float = PATIENCE) -> dict[str, Json]:
        """Until every worker runs."""

        def running() -> dict[str, Json]:
            workers = self.workers()
            states = {worker["state"] for worker in workers.values()}
            return workers if states <= {"running", "skipped"} else {}

        return wait_for("all workers run", running, timeout)

    def is_in(self, state: str) -> bool:
        """Whether all its workers are in this state."""
        return {worker["state"] for worker in self.workers().values()} == {state}

    def is_idle(self, reconciles: int) -> bool:
        """Whether no worker has anything left to do, after at least so many reconciles."""
        workers = self.workers().values()
        is_busy = any(worker.get("pending", 1) or worker["queue"]["ready"] for worker in workers)
        return not is_busy and sum(worker["done"] for worker in workers) >= reconciles


def waits_for_access(running: Running) -> str:
    """Its log once it waits for the API server to grant access; fails when the process ended."""
    log = running.log.read_text(errors="replace")
    assert running.process.poll() is None, log
    return log if "waiting for access" in log else ""


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def children_of(pid: int) -> set[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(one) for task in tasks for one in (task / "children").read_text().split()}


def started_at(pid: int) -> float:
    """Wall clock at which the process was made, less up to a tick of the kernel; see proc(5)."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


async def command(supervisor: Supervisor, name: str, **arguments: object) -> str:
    """What the supervisor answers to a control command."""
    request = {"command": name, **arguments}
    answer: Json = await asyncio.to_thread(ask, supervisor.control, request, deadlines.timeout(75))
    assert "ok" in answer, answer
    return str(answer["ok"])
