"""Prism, a proxy that holds requests and answers to the contract; as a module it installs it."""

import fcntl
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.labs.digitalocean.contract import CONTRACT
from tests.support.deadlines import timeout
from tests.support.running import wait_for

PACKAGE = "@stoplight/prism-cli@5.16.0"
INSTALL_LIMIT = 300.0  # seconds at rest


def installed() -> Path:
    """The program, from npm once; raises `OSError` without npm."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute()
    folder = cache / "ccm-supervisor" / PACKAGE.rpartition("/")[2]
    program = folder / "node_modules" / ".bin" / "prism"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            (folder / "package.json").write_text("{}")
            command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", PACKAGE]
            subprocess.run(command, cwd=folder, check=True, timeout=timeout(INSTALL_LIMIT))
    return program


@contextmanager
def proxy(url: str, log: Path) -> Iterator[str]:
    """Its address; a request or an answer that breaks the contract is an error of 4xx or 500."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(installed()), "proxy", str(CONTRACT), url, "--errors", "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)

    def listens() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return True
        return False

    try:
        wait_for("Prism listens", listens)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout())


if __name__ == "__main__":
    print(installed())
