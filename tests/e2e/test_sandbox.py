"""`ccm-supervisor sandbox`, as a newcomer starts it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.deadlines import Deadline

TOLD = (
    "put the shutdown taint on vm-1",
    "took the shutdown taint away",
    "took vm-2 from the load balancer",
    "deleted Node vm-2",
    "removed the route to vm-2",
    "now it is your turn",
)


def test_the_sandbox_stops_and_ends_machines_and_tells_what_each_worker_does(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "ccm.cli.main", "sandbox", "--nodes=3"]
    with subprocess.Popen(
        [*command, f"--directory={tmp_path}"], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout
        missing, lines, deadline = list(TOLD), [], Deadline(90)
        try:
            for line in running.stdout:
                lines.append(line.rstrip())
                missing = [reported for reported in missing if reported not in line]
                if not missing or deadline.has_passed():
                    break
        finally:
            running.send_signal(signal.SIGTERM)
    if missing:
        pytest.fail(f"not told: {missing}; but: {lines}")
    assert running.returncode == 0
