"""Starting the real things for process tests: cloud and supervisor, each as a process."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest

from ccm.bus.control import NotRunning, ask
from ccm.manifests.rbac import subjects
from ccm.sandbox.cloud.service import Tokens
from ccm.settings import Settings

T = TypeVar("T")
Json = dict[str, Any]

IS_LONG = bool(os.environ.get("CCM_LONG"))
"""Whether tests run at the sizes and for the times that nobody waits for at a desk."""
long = pytest.mark.skipif(not IS_LONG, reason="takes minutes: set CCM_LONG=1")

RULES = [
    {"apiGroups": [right.group], "resources": [right.resource], "verbs": [*right.verbs]}
    for right in subjects(Settings(), "kube-system")[0].rules
]
"""What docs/permissions.md says that the supervisor and its workers need."""


NODES_ONLY = "--controllers=cloud-node,cloud-node-lifecycle"
"""What a supervisor here runs unless its flags say otherwise."""


def wait_for(what: str, look: Callable[[], T], seconds: float = 30.0) -> T:
    """The first truthy result of `look`; fails the test when there is none in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if result := look():
            return result
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds:g} s: {what}")


class Running:
    """One process with a log file; it is ended at the end of the `with` block."""

    def __init__(self, name: str, directory: Path, arguments: list[str]) -> None:
        self.log = directory / f"{name}.log"
        with open(self.log, "ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments], stdout=output, stderr=output
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self, number: signal.Signals = signal.SIGTERM, seconds: float = 30.0) -> int:
        """Send a signal and wait for the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(seconds)
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
        wait_for("the cloud listens", url_file.exists)
        self.url = url_file.read_text().strip()
        self.config = directory / "cloud.conf"
        self.config.write_text(
            f"[Global]\nurl = {self.url}\ntoken = {Tokens().full}\nread-rate = {read_rate:g}\n"
        )


@dataclass(frozen=True, slots=True)
class Where:
    """What a supervisor is pointed at."""

    directory: Path
    kubeconfig: Path
    cloud_config: Path


class Controlled(Running):
    """A supervisor, which is asked through the socket in its directory `runtime` how it is."""

    runtime: Path
    PATIENCE = 2.0  # seconds that an answer may take

    @property
    def control(self) -> Path:
        return self.runtime / "control.sock"

    def status(self) -> Json:
        """Its own words; empty while it does not answer."""
        try:
            return ask(self.control, {"command": "status"}, self.PATIENCE)
        except NotRunning:
            if self.process.poll() is not None:
                raise AssertionError(f"the supervisor ended: {self.tail()}") from None
            return {}

    def workers(self) -> dict[str, Json]:
        return {worker["name"]: worker for worker in self.status().get("workers", [])}


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
                "--cloud-provider=simulated",
                f"--cloud-config={where.cloud_config}",
                f"--kubeconfig={where.kubeconfig}",
                f"--runtime-dir={self.runtime}",
                NODES_ONLY,
                "--secure-port=0",
                *flags,
            ],
        )

    def wait_running(self, seconds: float = 30.0) -> dict[str, Json]:
        """Until every worker runs."""

        def look() -> dict[str, Json]:
            workers = self.workers()
            states = {worker["state"] for worker in workers.values()}
            return workers if states <= {"running", "skipped"} else {}

        return wait_for("all workers run", look, seconds)


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


async def tell(supervisor: Supervisor, **request: object) -> str:
    """What the supervisor answers to a command."""
    answer: Json = await asyncio.to_thread(ask, supervisor.control, request, 75.0)
    assert "ok" in answer, answer
    return str(answer["ok"])


async def until(what: str, look: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait in a thread, so that a bystander in this loop goes on watching."""
    await asyncio.to_thread(wait_for, what, look, seconds)
