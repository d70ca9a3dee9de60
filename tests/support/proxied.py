"""A real HTTP proxy (proxy.py) as a process, and requests from processes with its environment."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.running import wait_for
from tests.support.waiting import until

WORD = "sesame"  # the password for the proxy, which no text may show


@dataclass(frozen=True)
class RunningProxy:
    """Its port, and the log, which has a line for each connection that has ended."""

    port: int
    log: Path

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def until_asked(self, request: str) -> None:
        """Wait for the method and address of a request to be among those that it served."""
        await until(lambda: f" - {request} - " in self.log.read_text(), request)


@contextmanager
def running_proxy(directory: Path, *flags: str) -> Iterator[RunningProxy]:
    """Started in this directory; it answers before the block begins."""
    port_file, log = directory / "proxy.port", directory / "proxy.log"
    log.touch()
    command = [
        *(sys.executable, "-m", "proxy", "--hostname", "127.0.0.1", "--port", "0"),
        *("--port-file", str(port_file), "--log-file", str(log)),
        *("--num-workers", "1", "--num-acceptors", "1"),
        *("--plugins", "tests.support.proxy_plugin.ToLoopback", *flags),
    ]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True) as process:
        try:
            port = wait_for("the proxy listens", lambda: port_file.exists() and _port(port_file))
            yield RunningProxy(port, log)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # with its workers; TERM waits for clients


def _port(file: Path) -> int:
    return int(file.read_text().split()[0] or 0)
