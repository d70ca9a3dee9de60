"""Child processes that cannot outlive this one, each with its output in a log file."""

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

LAUNCHER = Path(__file__).with_name("launch.py")


@dataclass(frozen=True, slots=True)
class Child:
    """One running, or ended, process."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL the process and wait for its end."""
        self.process.kill()
        self.process.wait()

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Nursery:
    """Starts children from one thread of its own, and kills them all when it is closed.

    The kernel's parent-death signal is sent when the thread that forked ends, so the caller's
    thread will not do. The thread here ends with `close`, or with this process however it ends.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kube-nursery")
        self._children: list[Child] = []

    def start(self, name: str, command: Sequence[str], directory: Path) -> Child:
        """Start `command` with its output appended to `<directory>/<name>.log`."""
        log = directory / f"{name}.log"
        child = Child(name, self._thread.submit(_spawn, command, log).result(), log)
        self._children.append(child)
        return child

    def close(self) -> None:
        """Kill what still runs, newest first, and return when it is gone."""
        for child in reversed(self._children):
            child.kill()
        self._thread.shutdown()


GARBAGE = {"GOGC": "400"}
"""Go's collector takes less time, and more memory, where a little is in use."""


def _spawn(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    launch = (sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()))
    with log.open("ab") as output:
        return subprocess.Popen(
            (*launch, *command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=GARBAGE | os.environ,
            start_new_session=True,  # Ctrl-C is for the tests, which then end their children
        )
