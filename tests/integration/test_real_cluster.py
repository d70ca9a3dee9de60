"""The real cluster ends with the tests, however these end."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.running import is_alive, wait_for

ROOT = Path(__file__).parents[2]
START_AND_SLEEP = """
import sys, time
from pathlib import Path
from tests.support.kube.cluster import RealCluster
cluster = RealCluster.start(Path(sys.argv[1]), Path(sys.argv[2]))
print(*cluster.pids.values(), flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of a death")
def test_nothing_outlives_a_killed_test_process(kube_binaries: Path, tmp_path: Path) -> None:
    command = (sys.executable, "-c", START_AND_SLEEP, str(kube_binaries), str(tmp_path))
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        pids = [int(pid) for pid in tests.stdout.readline().split()]
        assert len(pids) == 2
        tests.send_signal(signal.SIGKILL)
    wait_for("both are gone", lambda: not any(map(is_alive, pids)))
