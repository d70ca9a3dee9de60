"""The first code of processes that the supervisor starts; they import this module before all else.

A *template* has loaded what workers need and becomes one by forking: that takes milliseconds, where
a process that begins again loads for a second, and they share the memory of what is loaded.
"""

import gc
import importlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import multiprocess

from ccm.bus.frames import WorkerSpec
from ccm.processes import die_with_parent, go_first_without_memory, keep_memory_private

log = logging.getLogger(__name__)

SAFE_PATH = "PYTHONSAFEPATH"
"""Of Python: with it a process imports nothing from the directory that it starts in."""
SET_BY_US = "ccm-supervisor"
ADOPTION_INTERVAL = 0.001  # seconds between two looks whether the supervisor is the parent
ADOPTION_TIMEOUT = 5.0  # seconds


def run_worker(spec: WorkerSpec) -> None:
    """Be a worker, without a template."""
    go_first_without_memory()
    _run_worker(spec)


def _run_worker(spec: WorkerSpec) -> None:
    """Run it; named by text, as the supervisor imports none."""
    _leave_path_to_programs()
    importlib.import_module("workers.main").main(spec)


def run_template(
    connection: Any, supervisor: int, provider: str, controllers: Sequence[str]
) -> None:
    """Be a template: say 0 when all is loaded, then for each spec the PID of a worker.

    `connection` is one end of a `multiprocess.Pipe`. It ends with the supervisor, and at once where
    an import has started a thread, of which a fork would have no part.
    """
    die_with_parent(supervisor)
    go_first_without_memory()
    keep_memory_private()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # and not as of the process that it was forked of
    gc.disable()  # what is loaded stays
    importlib.import_module("workers.main").preload(provider, controllers)
    if threading.active_count() > 1:
        return
    gc.freeze()  # a collection in a worker leaves the pages that are shared alone
    gc.enable()
    connection.send(0)
    with suppress(EOFError):
        while True:
            connection.send(_fork(connection.recv(), connection))


def _leave_path_to_programs() -> None:
    """Credential plugins and the like find their modules as if they were started by hand."""
    if os.environ.get(SAFE_PATH) == SET_BY_US:
        del os.environ[SAFE_PATH]


def _fork(spec: WorkerSpec, connection: Any) -> int:
    """The PID of a new worker; its parent is the supervisor, which adopts it, and not this process.

    A process that ends as a child of a child belongs to the nearest ancestor that takes in orphans.
    """
    reading, writing = os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            if (pid := os.fork()) == 0:
                connection.close()
                os.close(reading)
                os.close(writing)
                _become_worker(spec)
            os.write(writing, str(pid).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        reported = pipe.read()
    os.waitpid(middle, 0)
    if not reported:
        raise OSError("no process is to be had")
    return int(reported)


def _become_worker(spec: WorkerSpec) -> None:
    """Run the worker once the supervisor is its parent; never returns."""
    code: object = 1
    multiprocess.current_process().name = spec.name
    try:
        deadline = time.monotonic() + ADOPTION_TIMEOUT
        while os.getppid() != spec.supervisor_pid and time.monotonic() < deadline:
            time.sleep(ADOPTION_INTERVAL)
        _run_worker(spec)
    except SystemExit as end:
        code = end.code or 0
    except Exception:  # around one callback: as an interpreter ends
        log.exception("worker failed")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
