"""Wheel and source distribution: complete, reproducible, and enough to run."""

import subprocess
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from ccm import __version__
from release.packages import make_packages
from release.tree import ROOT, last_release
from tests.e2e.release.conftest import clean_variables
from tests.support.running import Cloud, Controlled, Running, long, wait_for

Packages = tuple[Path, Path]
LIST_FILES = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
LEFT_OUT = (".ci/", ".github/", ".gitignore")
"""What has a meaning in the repository alone."""


def test_the_newest_release_in_the_changelog_is_this_version() -> None:
    assert last_release()[0] == __version__


@long
def test_the_source_distribution_has_all_of_the_tree(packages: Packages) -> None:
    tracked = subprocess.run(LIST_FILES, cwd=ROOT, capture_output=True, check=True)
    wanted = {name for name in tracked.stdout.decode().split() if not name.startswith(LEFT_OUT)}
    with tarfile.open(packages[0]) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert wanted - names == set()
    assert {name for name in names - wanted if "egg-info" not in name} == {"PKG-INFO"}


@long
def test_the_wheel_has_the_product_alone_and_says_what_it_is(packages: Packages) -> None:
    with zipfile.ZipFile(packages[1]) as wheel:
        names = {*wheel.namelist()}
        metadata = f"ccm_supervisor-{__version__}.dist-info/METADATA"
        said = message_from_string(wheel.read(metadata).decode())
    assert {name.partition("/")[0] for name in names} == {
        "ccm", "workers", f"ccm_supervisor-{__version__}.dist-info",
    }  # fmt: skip
    tree = (
        path.relative_to(ROOT) for top in ("ccm", "workers") for path in (ROOT / top).rglob("*")
    )
    assert {str(p) for p in tree if (ROOT / p).is_file() and p.suffix != ".pyc"} <= names
    assert said["License-Expression"] == "Apache-2.0"
    assert {"aws", "openstack", "testkit"} <= {*said.get_all("Provides-Extra", [])}


@long
def test_two_builds_are_the_same(
    packages: Packages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    again = make_packages(tmp_path)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in packages]


class Installed(Controlled):
    """`ccm-supervisor start` of an installation, away from this tree."""

    def __init__(self, commands: Path, directory: Path, *flags: str) -> None:
        self.runtime = directory / "run"
        words = [str(commands / "ccm-supervisor"), "start", f"--runtime-dir={self.runtime}", *flags]
        super().__init__("installed", directory, words)

    def command(self, arguments: list[str]) -> list[str]:
        return ["env", "--unset=PYTHONPATH", "--chdir=/", *arguments]


@long
def test_the_wheel_alone_runs(installed: Path, tmp_path: Path) -> None:
    version = subprocess.run(
        [installed / "ccm-supervisor", "--version"],
        env=clean_variables(), cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert __version__ in version.stdout
    kubeconfig = tmp_path / "kubeconfig"
    server = ["ccm.sandbox.kubernetes", f"--kubeconfig={kubeconfig}"]
    with Running("kubernetes", tmp_path, server), Cloud(tmp_path) as cloud:
        wait_for("the API server listens", kubeconfig.exists)
        flags = (
            "--cloud-provider=simulated", f"--cloud-config={cloud.config}",
            f"--kubeconfig={kubeconfig}", "--secure-port=0",
        )  # fmt: skip
        with Installed(installed, tmp_path, *flags) as supervisor:
            wait_for("it leads", supervisor.is_leading)
            wait_for("nodes are worked on", lambda: running(supervisor, "node-0"))
            assert supervisor.end() == 0


@long
@pytest.mark.timeout(900)
def test_what_a_new_provider_prints_as_next_steps_works_as_it_is(
    installed: Path, tmp_path: Path
) -> None:
    """In an environment of its own, with all else from PyPI."""

    def shell(script: str) -> str:
        done = subprocess.run(
            ["bash", "-c", script],
            env=clean_variables(), cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    printed = shell(f"{installed}/ccm-supervisor provider new mine").splitlines()
    steps = [line.strip() for line in printed if line.startswith("  ")]
    assert "conformance of provider mine" in shell(" && ".join(steps))
    assert "mine" in shell("ccm-provider-mine/.venv/bin/ccm-supervisor providers").split()


def running(supervisor: Controlled, worker: str) -> bool:
    return supervisor.workers().get(worker, {}).get("state") == "running"
