"""What processes cost, asked of real ones."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.processes import Cost, cpu_seconds, family, pss_mib
from tests.proc.running import wait_for

PARENT = """
import subprocess, sys, threading
def start():
    child = subprocess.Popen(["sleep", "60"])
    print(child.pid, flush=True)
    child.wait()
threads = [threading.Thread(target=start) for _ in range(2)]
for thread in threads:
    thread.start()
sys.stdin.read()
"""
GROWS = """
print("small", flush=True)
input()
held = bytearray(64 << 20)
held[::1024] = bytes(64 << 10)
print("large", flush=True)
input()
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


def test_memory_is_counted_in_mib() -> None:
    with running(sys.executable, "-c", GROWS) as process:
        line(process)
        before = pss_mib(process.pid)
        assert process.stdin
        print(file=process.stdin, flush=True)
        line(process)
        assert 63.5 < pss_mib(process.pid) - before < 64.5


def test_cpu_time_grows_with_work_whatever_the_process_is_called(tmp_path: Path) -> None:
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to("/bin/sh")
    with running(str(odd), "-c", "while :; do :; done") as process:
        wait_for("it worked", lambda: cpu_seconds(process.pid) > 0.1)
        assert cpu_seconds(process.pid) < 20.0


def test_a_process_that_is_gone_costs_nothing() -> None:
    with running(sys.executable, "-c", "while True: pass") as process:
        wait_for("it costs something", lambda: Cost.of(process.pid).cpu)
    assert Cost.of(process.pid) == Cost(0.0, 0.0)
