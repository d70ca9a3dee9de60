"""Processes of the product as forks of one that has imported its modules, which takes its time.

What runs is what `python -m` runs, with the same environment, directory and signals. Tests of the
installation, the sandbox and systemd start their own interpreters.
"""

import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path

PROGRAMS = {"ccm.cli.main", "ccm.sandbox.cloud"}
LOADED = (
    __name__,
    "ccm.cli.main",
    "ccm.cli.start",
    "ccm.kube.config",
    "ccm.kube.lease",
    "ccm.manifests.rbac",
    "ccm.providers.simulated.provider",
    "ccm.sandbox.cloud.server",
    "ccm.supervisor.preflight",
    "ccm.supervisor.serving",
    "ccm.supervisor.supervisor",
    "workers.main",
    "workers.node.controller",
    "workers.route.controller",
    "workers.service.controller",
    "workers.volume_label.controller",
)


def _of_python() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}


USUAL = _of_python()


def can_be_forked(command: Sequence[str]) -> bool:
    """Whether a fork runs this as an interpreter would that is started now."""
    is_program = command[:2] == [sys.executable, "-m"] and command[2] in PROGRAMS
    is_usual = _of_python() == USUAL and signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
    return is_program and is_usual


class Forked:
    """The part of `subprocess.Popen` that tests use, of a module with its arguments."""

    def __init__(self, module: str, arguments: Sequence[str], log: Path) -> None:
        log.touch()
        context = get_context("forkserver")
        context.set_forkserver_preload([*LOADED])
        given = module, arguments, log, dict(os.environ)
        self._process = context.Process(target=_run, args=given, daemon=True)
        self._process.start()
        self._lock = threading.Lock()
        self.pid = self._process.pid or 0
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with self._lock:
            self.returncode = self._process.exitcode
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        wait([self._process.sentinel], timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(module: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    sys.argv = [module, *arguments]
    sys.modules.pop(module, None)  # it is `__main__`
    runpy.run_module(module, run_name="__main__", alter_sys=True)
