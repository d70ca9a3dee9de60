"""`ccm-supervisor sandbox`, as a newcomer starts it."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.deadlines import timeout

TOLD = (
    "vm-1: the machine stopped",
    ": put the shutdown taint on vm-1",
    "keep vm-1: a machine that is off may come back",
    ": took the shutdown taint from vm-1",
    " s: took vm-2 from the load balancer",
    " s: deleted Node vm-2",
    " s: removed the routes to Node vm-2",
    "now it is your turn",
)
TRIED = {
    "ccm-supervisor sandbox machine terminate vm-3": (
        "vm-3: the machine is terminated",
        " s: deleted Node vm-3",
        " s: removed the routes to Node vm-3",
    ),
    "ccm-supervisor check; ccm-supervisor sandbox add 2": (
        ": initialized Node",
        ": made the routes to Node",
    ),
    "ccm-supervisor restart node-0": ("supervisor: runs node-0 in process",),
    "ccm-supervisor sandbox fault set error; ccm-supervisor sandbox add 1": (
        "the cloud has a fault: error of *",
        "500 InternalError: something broke in the cloud. Failing for",
    ),
    "ccm-supervisor sandbox fault clear": (
        "this fault of the cloud ended: error of *",
        ": initialized Node",
        "reports no problem",
    ),
}
"""What a person types, and the consequences."""


def test_the_sandbox_tells_what_it_and_a_person_did_and_what_each_worker_does_about_it(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "ccm.cli.main", "sandbox", "--nodes=20"]
    with subprocess.Popen(
        [*command, f"--directory={tmp_path}"], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout
        missing, tried, lines = list(TOLD), list(TRIED.items()), list[str]()
        overdue = threading.Timer(timeout(240), running.terminate)  # the output ends with it
        overdue.start()
        try:
            for line in running.stdout:
                lines.append(line.rstrip())
                missing = [reported for reported in missing if reported not in line]
                if not missing and not tried:
                    break
                if not missing:
                    typed, following = tried.pop(0)
                    missing = [*following]
                    subprocess.run(["sh", "-ec", f". {tmp_path}/env; {typed}"], check=True)
        finally:
            overdue.cancel()
            running.send_signal(signal.SIGTERM)
    if missing:
        pytest.fail(f"not told: {missing}; but: {lines}")
    assert running.returncode == 0
