"""Starting worker processes: by a template that forks, or each again while there is none."""

import asyncio
import logging
import os
import select
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, Self

import multiprocess
from multiprocess.util import register_after_fork

import ccm
from ccm.background import call_until_done
from ccm.bus.frames import WorkerSpec
from ccm.processes import adopt_orphans, zombies
from ccm.supervisor.spawn import SAFE_PATH, SET_BY_US, run_template, run_worker

log = logging.getLogger(__name__)

LOAD_TIMEOUT = 10.0  # seconds for which workers wait for the template to have loaded
FORK_TIMEOUT = 2.0  # seconds until a template that does not answer is given up
REAP_INTERVAL = 30.0  # seconds between two looks for processes that no one waits for


@contextmanager
def _safe_path() -> Iterator[None]:
    """What is started here imports nothing from the current directory, which anybody may fill."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = before or SET_BY_US
    try:
        yield
    finally:
        if not before:
            del os.environ[SAFE_PATH]


class Process(Protocol):
    """What the supervisor holds of a worker's process, as `multiprocess.Process` has it.

    `sentinel` is a file descriptor that can be read from the end of the process on.
    """

    pid: int
    sentinel: int
    exitcode: int | None

    def terminate(self) -> None: ...

    def kill(self) -> None: ...

    def join(self, timeout: float) -> None: ...


class ForkedProcess:
    """A process that a template forked and this one adopted; the PID is its own until `join`.

    Without a descriptor for it (`OSError`) it is ended at once: its end would go unnoticed.
    """

    def __init__(self, pid: int) -> None:
        self.pid, self.sentinel = pid, -1
        try:
            self.sentinel = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        self.exitcode: int | None = None

    def terminate(self) -> None:
        """Ask it to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._signal(signal.SIGKILL)

    def join(self, timeout: float) -> None:
        """Wait for its end; `exitcode` is as that of `subprocess`."""
        if self.exitcode is None and select.select([self.sentinel], [], [], timeout)[0]:
            _, status = os.waitpid(self.pid, 0)
            self.exitcode = os.waitstatus_to_exitcode(status)

    def __del__(self) -> None:
        if self.sentinel >= 0:
            os.close(self.sentinel)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.sentinel, number)


async def reap_orphans() -> None:
    """Wait for adopted processes that ended, such as what a credential plugin left behind.

    Children that we started are waited for at once, elsewhere; these ended a while ago.
    """
    before = set[int]()
    while True:
        now = zombies()
        for pid in now & before:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - it ended already
        before = now - before
        await asyncio.sleep(REAP_INTERVAL)


class InstalledPackage:
    """The package on disk that this process was loaded from."""

    def __init__(self) -> None:
        self._before = self._now()

    def is_replaced(self) -> bool:
        """Whether it is gone, or another one is in its place: what is loaded now would be mixed."""
        return self._now() != self._before

    @staticmethod
    def _now() -> tuple[int, ...]:
        try:
            found = Path(ccm.__file__).stat()
        except OSError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size


class WorkerStarter:
    """Starts worker processes: of a provider, with these controllers (see `load_controller`).

    Call it from the main thread, as the kernel ends a child with the thread that started it. Enter
    it before there is an event loop, a thread or anything that no worker may have: the first
    template is forked from this process, and begins with all that is loaded here.
    """

    def __init__(self, provider: str, controllers: Sequence[str]) -> None:
        self._provider, self._controllers = provider, controllers
        self._context = multiprocess.get_context("spawn")
        self._template: _Template | None = None
        self.package = InstalledPackage()
        self.is_outdated = False
        """Whether workers can be started of another version only, so that none is started."""

    def __enter__(self) -> Self:
        """Let a template load, where the kernel has what it takes (Linux 5.3)."""
        try:
            adopt_orphans()
            os.close(os.pidfd_open(os.getpid()))
        except OSError as error:
            log.info("workers start without a template", extra={"why": str(error)})
        else:
            self._load(multiprocess.get_context("fork"))
        return self

    def __exit__(self, *_: object) -> None:
        """End the template; workers go on."""
        if self._template:
            self._template.end()
            self._template = None

    async def loaded(self) -> None:
        """Wait until the template has loaded, or for `LOAD_TIMEOUT`."""
        if self._template:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOAD_TIMEOUT):
                    await self._template.loaded()
        self.is_outdated = self.package.is_replaced()  # the template may have loaded some of each

    def start(self, spec: WorkerSpec) -> Process:
        """A process for `spec`; raises `OSError` or `MemoryError` when there can be none.

        It is of the version that runs here, or not started: the package on disk may be another.
        A template that does not answer may have begun with it: then there is none of this name.
        """
        if self._template and self._template.is_loaded():
            try:
                pid = self._template.fork(spec)
            except TimeoutError as error:
                self._replace_template(error)
                raise
            except (OSError, EOFError) as error:
                self._replace_template(error)
            else:
                return ForkedProcess(pid)
        self.is_outdated = self.is_outdated or self.package.is_replaced()
        if self.is_outdated:
            raise OSError("the package on disk was replaced")
        process = self._context.Process(
            target=run_worker, args=(spec,), name=spec.name, daemon=True
        )
        with _safe_path():
            process.start()
        return process  # type: ignore[no-any-return]  # multiprocess has no types

    def _replace_template(self, error: Exception) -> None:
        log.warning("template of workers replaced", extra={"why": repr(error)})
        if self._template:
            self._template.end()
        self._template = None  # workers start without one, if there can be none
        if not self.package.is_replaced():
            self._load(self._context)

    def _load(self, context: Any) -> None:
        self._template = _Template(context, self._provider, self._controllers)


class _Template:
    """The supervisor's end of a process that runs `run_template`."""

    def __init__(self, context: Any, provider: str, controllers: Sequence[str]) -> None:
        self._connection, theirs = context.Pipe()
        register_after_fork(self._connection, lambda ours: ours.close())
        given = theirs, os.getpid(), provider, controllers
        self._process = context.Process(
            target=run_template, args=given, name="template", daemon=True
        )
        with _safe_path():
            self._process.start()
        theirs.close()
        self._is_ready = False

    def is_loaded(self) -> bool:
        """Whether it can fork; never, when it ended without having said so."""
        if not self._is_ready and self._connection.poll():
            with suppress(EOFError, OSError):
                self._is_ready = self._connection.recv() == 0
        return self._is_ready

    async def loaded(self) -> None:
        """Wait until it has loaded, or ended."""
        loop, said = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._connection.fileno(), call_until_done, said.set)
        try:
            await said.wait()
        finally:
            loop.remove_reader(self._connection.fileno())

    def fork(self, spec: WorkerSpec) -> int:
        """The PID of a new worker; raises `OSError` or `EOFError` when the template cannot."""
        self._connection.send(spec)
        if not self._connection.poll(FORK_TIMEOUT):
            raise TimeoutError("it does not answer")
        pid: int = self._connection.recv()
        return pid

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()
