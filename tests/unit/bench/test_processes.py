"""What processes cost, asked of real ones."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.processes import Cost, cpu_seconds, family
from tests.support.running import wait_for

PARENT = r"""
import subprocess, sys, threading
def start():
    child = subprocess.Popen(["sleep", "60"])
    print(f"{child.pid}\n", end="", flush=True)  # in one piece, beside the other thread
    child.wait()
threads = [threading.Thread(target=start) for _ in range(2)]
for thread in threads:
    thread.start()
sys.stdin.read()
"""


@contextmanager
def running(*command: str) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout
    return process.stdout.readline()


def test_a_family_is_a_process_and_what_any_of_its_threads_started() -> None:
    with running(sys.executable, "-c", PARENT) as process:
        children = {int(line(process)) for _ in range(2)}
        assert set(family(process.pid)) == {process.pid, *children}
        process.kill()
        subprocess.run(["kill", *map(str, children)], check=True)


def test_cpu_time_grows_with_work_whatever_the_process_is_called(tmp_path: Path) -> None:
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to("/bin/sh")
    with running(str(odd), "-c", "while :; do :; done") as process:
        wait_for("it worked", lambda: cpu_seconds(process.pid) > 0.1)
        assert cpu_seconds(process.pid) < 20.0
    assert Cost.of(process.pid) == Cost(0.0, 0.0), "one that is gone costs nothing"
