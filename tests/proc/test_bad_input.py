"""What an operator gets wrong: one line each that names the field and the remedy, and exit 78."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.cluster import RealCluster
from tests.proc.running import RULES, Cloud, Supervisor, Where, wait_for

CONFIGURATION = 78


def start(*flags: str, seconds: float = 30.0) -> tuple[int, list[str]]:
    """Exit code and error lines of a start that should not last."""
    done = subprocess.run(
        [sys.executable, "-m", "ccm.cli.main", "start", *flags],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, [
        line for line in done.stderr.splitlines() if line.startswith("ccm-supervisor: ")
    ]


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with Cloud(tmp_path) as cloud:
        yield cloud


@pytest.fixture
def entitled(kube: RealCluster) -> Path:
    """The kubeconfig of an account of our own that has every right: others share the cluster."""
    return kube.service_account_kubeconfig("bad-input", "ccm", RULES)


def kubeconfig(path: Path, server: str) -> Path:
    """A kubeconfig for a server that wants no credentials."""
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        f"clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
        "users: [{name: u, user: {}}]\n"
    )
    return path


def test_every_wrong_flag_is_told_at_once() -> None:
    code, lines = start(
        "--leader-elect-retry-period=soon", "--node-workers=0", "--logging-format=xml"
    )
    assert code == CONFIGURATION
    assert len(lines) == 4
    for flag in (
        "--leader-elect-retry-period: 'soon' is not a duration",
        "--cloud-provider: cannot be empty",
        "--node-workers: '0' must be a positive number",
        "--logging-format: 'xml' is not known; choose one of text, json",
    ):
        assert any(flag in line for line in lines), flag


def test_an_unknown_provider_lists_the_known_ones() -> None:
    code, [line] = start("--cloud-provider=nimbus")
    assert code == CONFIGURATION
    assert "--cloud-provider: 'nimbus' is not known; choose one of: " in line
    assert "simulated" in line


def test_a_kubeconfig_that_is_not_there(tmp_path: Path) -> None:
    code, [line] = start("--cloud-provider=simulated", f"--kubeconfig={tmp_path}/none")
    assert code == CONFIGURATION
    assert f"--kubeconfig: {tmp_path}/none cannot be read: No such file" in line


def test_a_kubeconfig_that_is_not_one(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text("{[")
    code, [line] = start("--cloud-provider=simulated", f"--kubeconfig={file}")
    assert code == CONFIGURATION
    assert f"--kubeconfig: {file} is not usable" in line


def test_an_api_server_that_does_not_answer_is_told_but_may_come_back(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    code, [line] = start(
        "--cloud-provider=simulated", f"--kubeconfig={file}", f"--runtime-dir={tmp_path}/run"
    )
    assert code == 1  # not a configuration error: systemd may start us again
    assert "--kubeconfig: the API server at http://127.0.0.1:9 does not answer" in line


@pytest.mark.real
def test_credentials_that_are_not_accepted(tmp_path: Path, kube: RealCluster) -> None:
    file = tmp_path / "kubeconfig"
    text = kube.kubeconfig("nobody").read_text()
    file.write_text(text.replace(kube.token("nobody"), "wrong"))
    code, [line] = start(
        "--cloud-provider=simulated", f"--kubeconfig={file}", f"--runtime-dir={tmp_path}/run"
    )
    assert code == CONFIGURATION
    assert "does not accept these credentials (401); renew" in line


@pytest.mark.real
def test_an_identity_without_rights(tmp_path: Path, kube: RealCluster) -> None:
    code, [line] = start(
        "--cloud-provider=simulated",
        f"--kubeconfig={kube.kubeconfig('nobody')}",
        f"--runtime-dir={tmp_path}/run",
    )
    assert code == CONFIGURATION
    assert "forbids listing nodes (403" in line
    assert "grant this identity the rights in docs/permissions.md" in line


@pytest.mark.real
def test_a_cloud_config_with_wrong_keys(tmp_path: Path, entitled: Path) -> None:
    config = tmp_path / "cloud.conf"
    config.write_text("[Global]\nulr = http://127.0.0.1:1\ntimeout = soon\n")
    code, lines = start(
        "--cloud-provider=simulated",
        f"--cloud-config={config}",
        f"--kubeconfig={entitled}",
        f"--runtime-dir={tmp_path}/run",
    )
    assert code == CONFIGURATION
    assert any("ulr" in line for line in lines)
    assert any("timeout" in line for line in lines)
    assert all(str(config) in line for line in lines)


@pytest.mark.real
def test_a_cloud_config_that_is_not_there(tmp_path: Path, entitled: Path) -> None:
    code, [line] = start(
        "--cloud-provider=simulated",
        f"--cloud-config={tmp_path}/none",
        f"--kubeconfig={entitled}",
        f"--runtime-dir={tmp_path}/run",
    )
    assert code == CONFIGURATION
    assert f"--cloud-config: {tmp_path}/none cannot be read" in line


def test_a_runtime_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, [line] = start(
        "--cloud-provider=simulated",
        f"--kubeconfig={kubeconfig(tmp_path / 'kubeconfig', 'http://127.0.0.1:9')}",
        f"--runtime-dir={tmp_path}/file/run",
    )
    assert code == CONFIGURATION
    assert f"--runtime-dir: {tmp_path}/file/run cannot be used: Not a directory" in line


@pytest.mark.real
def test_a_runtime_directory_in_use(tmp_path: Path, entitled: Path, cloud: Cloud) -> None:
    where = Where(tmp_path, entitled, cloud.config)
    with Supervisor(where) as running:
        wait_for("the first one answers", running.status)
        code, [line] = start(
            "--cloud-provider=simulated",
            f"--kubeconfig={where.kubeconfig}",
            f"--runtime-dir={running.runtime}",
        )
        assert code == CONFIGURATION
        assert f"is in use by a running supervisor (pid {running.process.pid}); stop" in line
        assert running.wait_running()
