"""What the newest upstream library offers is known here, so that its next release is noticed."""

import re
import subprocess
from pathlib import Path

import pytest

from ccm import metrics
from ccm.settings import KNOWN_FEATURE_GATES, flags
from tests.peers.upstream import AWS
from tests.support.kube.build import PEER, PEERS, find_binaries
from tests.support.needed import needed
from tests.support.running import long

NOT_BUILT = "upstream's controller is not built: run `make peers`"
NO_COUNTERPART = {
    "service_controller_nodesync_latency_seconds": "nodes have no common pass",
    "cloud_provider_webhook_request_total": "there are no webhooks",
    "cloud_provider_webhook_request_duration_seconds": "there are no webhooks",
}
"""Metrics of upstream that mean nothing here."""


@pytest.fixture(scope="module", params=["cloud-controller-manager", AWS])
def usage(request: pytest.FixtureRequest) -> str:
    """What the `--help` prints of the library's own command, and of AWS's."""
    folder = needed(find_binaries(PEERS), NOT_BUILT)
    command = [str(folder / request.param), "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_each_of_its_flags_is_one_of_ours(usage: str) -> None:
    theirs = {*re.findall(r"^\s+(?:-\w, )?--([a-z0-9-]+)", usage, re.MULTILINE)}
    assert len(theirs) > 80
    assert theirs - {flag.name for flag in flags()} == {"help", "version"}


def test_each_of_its_feature_gates_is_known(usage: str) -> None:
    theirs = {*re.findall(r"^\s+(\w+)=true\|false \(", usage, re.MULTILINE)}
    assert len(theirs) > 40
    assert theirs - KNOWN_FEATURE_GATES == set()


@pytest.mark.usefixtures("usage")
@pytest.mark.parametrize("usage", ["cloud-controller-manager"], indirect=True)
def test_each_of_its_metrics_is_ours_or_has_no_counterpart() -> None:
    theirs = {name for path in _sources().rglob("*metrics.go") for name in _metrics_of(path)}
    assert len(theirs) > 8
    ours = {metric.name for metric in vars(metrics).values() if isinstance(metric, metrics.Metric)}
    assert theirs - ours == NO_COUNTERPART.keys()


@long
def test_there_is_no_newer_release() -> None:
    versions = _go("list", "-m", "-versions", PEER.module).split()[1:]
    released = [version for version in versions if "-" not in version]
    newest = max(released, key=lambda version: [int(part) for part in version[1:].split(".")])
    assert newest == PEER.version


def _sources() -> Path:
    return Path(_go("list", "-m", "-f", "{{.Dir}}", PEER.module))


def _metrics_of(path: Path) -> set[str]:
    """Full names: a subsystem, which may be a constant of the file, and a name."""
    text = path.read_text()
    subsystems = re.findall(r'(?i)subsystem\w* *= *"(\w+)"', text)
    return {f"{subsystems[0]}_{name}" for name in re.findall(r'\bName: *"(\w+)"', text)}


def _go(*words: str) -> str:
    done = subprocess.run(["go", *words], cwd=PEER.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
