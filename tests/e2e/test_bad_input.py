"""What an operator gets wrong: one line each that names the field and the remedy, and exit 78."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.support.deadlines import timeout
from tests.support.kube.cluster import RealCluster
from tests.support.running import RULES, Cloud, Supervisor, Where, wait_for, waits_for_access

CONFIGURATION, FAILED = 78, 1
SIMULATED = "--cloud-provider=simulated"


def start(*flags: str) -> tuple[int, list[str]]:
    """Exit code and error lines of a start that should not last."""
    command = [sys.executable, "-m", "ccm.cli.main", "start", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout(), check=False)
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    return done.returncode, [line for line in lines if line.startswith("ccm-supervisor: ")]


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with Cloud(tmp_path) as cloud:
        yield cloud


@pytest.fixture
def entitled(kube: RealCluster) -> Path:
    """The kubeconfig of an account of our own that has every right: others share the cluster."""
    return kube.service_account_kubeconfig("bad-input", "ccm", RULES)


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    """What the flags of the tables name: a kubeconfig that wants no credentials, and others."""
    (tmp_path / "kubeconfig").write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
        "users: [{name: u, user: {}}]\n"
    )
    (tmp_path / "broken").write_text("{[")
    (tmp_path / "wrong.conf").write_text("[Global]\nulr = http://127.0.0.1:1\ntimeout = soon\n")


TOLD = {
    ("--cloud-provider=nimbus",): (
        CONFIGURATION,
        "--cloud-provider: 'nimbus' is not known; choose one of: ",
        "simulated",
    ),
    (SIMULATED, "--kubeconfig={tmp}/none"): (
        CONFIGURATION,
        "--kubeconfig: {tmp}/none cannot be read: No such file",
    ),
    (SIMULATED, "--kubeconfig={tmp}/broken"): (
        CONFIGURATION,
        "--kubeconfig: {tmp}/broken is not usable",
    ),
    (SIMULATED, "--kubeconfig={tmp}/kubeconfig"): (
        FAILED,  # not a configuration error: systemd may start us again
        "--kubeconfig: the API server at http://127.0.0.1:9 does not answer",
    ),
    (SIMULATED, "--kubeconfig={tmp}/kubeconfig", "--runtime-dir={tmp}/broken/run"): (
        CONFIGURATION,
        "--runtime-dir: {tmp}/broken/run cannot be used: Not a directory",
    ),
}


@pytest.mark.parametrize("flags", TOLD, ids=lambda flags: flags[-1])
def test_one_line_names_the_flag_and_the_fault(flags: Sequence[str], tmp_path: Path) -> None:
    code, *parts = TOLD[tuple(flags)]
    flags = "--runtime-dir={tmp}/run", *flags  # the usual one is everybody's; the last flag holds
    found, [line] = start(*(flag.format(tmp=tmp_path) for flag in flags))
    assert found == code
    for part in parts:
        assert str(part).format(tmp=tmp_path) in line


@pytest.mark.real
def test_credentials_that_are_not_accepted_or_have_no_rights_are_waited_for(
    tmp_path: Path, kube: RealCluster
) -> None:
    rightless, wrong = kube.kubeconfig("nobody"), tmp_path / "wrong-token"
    wrong.write_text(rightless.read_text().replace(kube.token("nobody"), "wrong"))
    for file, *parts in (
        (wrong, "does not accept these credentials (401); renew"),
        (
            rightless,
            "forbids listing nodes (403",
            "grant this identity the rights in docs/permissions.md",
        ),
    ):
        with Supervisor(Where(tmp_path, file, tmp_path / "cloud.conf"), name=file.stem) as started:
            log = wait_for("it waits", partial(waits_for_access, started))
        assert all(part in log for part in parts), log


@pytest.mark.real
@pytest.mark.parametrize(
    ("config", "count", "parts"),
    [
        ("wrong.conf", 4, ("ulr", "timeout")),
        ("none", 1, ("--cloud-config: {file} cannot be read",)),
    ],
)
def test_a_cloud_config_that_is_wrong_or_not_there(
    config: str, count: int, parts: Sequence[str], tmp_path: Path, entitled: Path
) -> None:
    file = tmp_path / config
    code, lines = start(
        SIMULATED,
        f"--cloud-config={file}",
        f"--kubeconfig={entitled}",
        f"--runtime-dir={tmp_path}/run",
    )
    assert code == CONFIGURATION
    assert len(lines) == count
    for part in parts:
        assert any(part.format(file=file) in line for line in lines)
    assert all(str(file) in line for line in lines)


@pytest.mark.real
def test_a_runtime_directory_in_use(tmp_path: Path, entitled: Path, cloud: Cloud) -> None:
    with Supervisor(Where(tmp_path, entitled, cloud.config)) as running:
        wait_for("the first one answers", running.status)
        code, [line] = start(
            SIMULATED, f"--kubeconfig={entitled}", f"--runtime-dir={running.runtime}"
        )
        assert code == CONFIGURATION
        assert f"is in use by a running supervisor (pid {running.process.pid}); stop" in line
        assert running.wait_running()
