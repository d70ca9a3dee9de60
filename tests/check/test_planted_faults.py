"""Each planted fault is found by its check, with the remedy, and hides no other check."""

import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from ccm.checks.all import CHECKS
from tests.check import faults_of_cloud, faults_of_cluster, faults_of_host, faults_of_nodes
from tests.check.row import Ground, Row
from tests.check.world import World

pytestmark = pytest.mark.real

ROWS = (
    *faults_of_cluster.ROWS,
    *faults_of_nodes.ROWS,
    *faults_of_cloud.ROWS,
    *faults_of_host.ROWS,
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_a_planted_fault_is_found_and_hides_nothing(
    row: Row, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextmanager(row.plant)(Ground(world, tmp_path, monkeypatch)) as flags:
        report = world.check(*flags, identity=row.identity)
    assert list(report.states) == [check.name for check in CHECKS]
    found = [each for each in report.findings(row.check) if row.seen in each["seen"]]
    assert found, report.findings(row.check)
    for finding in found:
        assert (finding["state"], row.remedy in finding["remedy"]) == (row.state, True), finding
    assert report.of("failed", "warning") == {row.check} | row.also, report.body
    assert report.exit_code == (1 if report.of("failed") else 0)


def test_too_few_open_files_and_the_exit_code_of_a_real_process(world: World) -> None:
    command = [sys.executable, "-m", "ccm.cli.main", "check", *world.flags()]
    done = subprocess.run(
        ["sh", "-c", f"ulimit -n 100; exec {shlex.join(command)}"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "100 files may be open" in done.stdout
    assert "ulimit -n 1024, or LimitNOFILE=" in " ".join(done.stdout.split())
    assert f"{len(CHECKS)} checks:" in done.stdout
