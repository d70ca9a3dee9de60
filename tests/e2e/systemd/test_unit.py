"""The unit file as systemd's own tools see it, and what `make install-systemd` stages."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ccm.cli.start import start as start_command
from ccm.settings import Settings
from ccm.supervisor.systemd import STOP_MARGIN
from tests.support.deadlines import timeout
from tests.support.needed import needed

SOURCE = Path(__file__).parents[3]
FOLDER = SOURCE / "systemd"
UNIT = FOLDER / "ccm-supervisor.service"
MAX_EXPOSURE = 2.0
MISSING = "systemd-analyze is not installed: apt-get install systemd"


def run(*command: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout(), check=False)


@pytest.fixture
def analyze() -> str:
    """The program; without it a skip on a laptop and a failure in CI."""
    return needed(shutil.which("systemd-analyze"), MISSING)


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    """What `make install-systemd DESTDIR=…` makes."""
    return install(tmp_path)


def install(directory: Path, *variables: str) -> Path:
    target = ("install-systemd", f"DESTDIR={directory}", *variables)
    done = run("make", "-f", FOLDER / "install.mk", *target)
    assert done.returncode == 0, done.stderr
    return directory


def unit_lines(name: str) -> list[str]:
    """The values of a setting in the unit, in order."""
    joined = re.sub(r"\\\n\s*", "", UNIT.read_text())
    return re.findall(rf"^{name}=(.*)$", joined, re.MULTILINE)


@pytest.fixture
def root(staged: Path) -> Path:
    """The same with the program and the other units that the service names."""
    for name in ("opt/ccm-supervisor/bin/ccm-supervisor", "usr/bin/kill"):
        program = staged / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch(mode=0o755)
    units = staged / "usr/lib/systemd/system"
    units.mkdir(parents=True)
    for name in ("basic", "multi-user", "network-online", "shutdown", "sysinit"):
        (units / f"{name}.target").write_text(f"[Unit]\nDescription={name}\n")
    return staged


def test_systemd_finds_a_mistake_and_nothing_else_to_complain_of(analyze: str, root: Path) -> None:
    verify = (analyze, "verify", "--man=no", f"--root={root}", UNIT.name)
    done = run(*verify)
    assert (done.returncode, done.stderr) == (0, "")
    unit = root / "etc/systemd/system" / UNIT.name
    unit.write_text(unit.read_text().replace("WatchdogSec=", "WatchDogSec="))
    assert "'WatchDogSec'" in run(*verify).stderr


def test_the_exposure_is_low(analyze: str) -> None:
    done = run(analyze, "security", "--offline=true", "--no-pager", UNIT)
    found = re.search(r"Overall exposure level for .*: ([\d.]+)", done.stdout)
    assert found, done.stderr
    assert float(found[1]) <= MAX_EXPOSURE, done.stdout


def test_every_flag_in_the_unit_and_the_environment_file_exists() -> None:
    known = {name for parameter in start_command.params for name in parameter.opts}
    (command,) = unit_lines("ExecStart")
    shown = (FOLDER / "ccm-supervisor.env").read_text()
    used = set(re.findall(r"(--[a-z][a-z-]*)=", command + shown))
    assert used - known == set()
    assert {"--runtime-dir", "--kubeconfig", "--cloud-config", "--cloud-provider"} <= used


def test_the_stop_may_take_as_long_as_the_shutdown_timeout() -> None:
    (timeout,) = unit_lines("TimeoutStopSec")
    assert float(timeout) >= Settings().shutdown_timeout + STOP_MARGIN


def test_a_worker_killed_for_its_memory_does_not_stop_the_service() -> None:
    assert unit_lines("OOMPolicy") == ["continue"]


def test_the_installation_stages_every_file_and_keeps_secrets_private(staged: Path) -> None:
    files = {
        str(path.relative_to(staged)): oct(path.stat().st_mode & 0o777)
        for path in staged.rglob("*")
        if path.is_file()
    }
    assert files == {
        "etc/ccm-supervisor/ccm-supervisor.env": "0o600",
        "etc/systemd/system/ccm-supervisor.service": "0o644",
        "etc/sysusers.d/ccm-supervisor.conf": "0o644",
        "usr/local/share/man/man1/ccm-supervisor.1": "0o644",
    }
    assert (staged / "etc/ccm-supervisor").stat().st_mode & 0o777 == 0o700


def test_a_package_says_where_its_files_and_its_command_are(tmp_path: Path) -> None:
    install(tmp_path, "UNITDIR=/usr/lib/systemd/system", "COMMAND=/usr/bin/ccm-supervisor")
    unit = (tmp_path / "usr/lib/systemd/system/ccm-supervisor.service").read_text()
    assert "ExecStart=/usr/bin/ccm-supervisor start" in unit


def test_what_is_removed_is_all_but_flags_and_credentials(staged: Path) -> None:
    done = run("make", "-f", FOLDER / "install.mk", "uninstall-systemd", f"DESTDIR={staged}")
    assert done.returncode == 0, done.stderr
    left = {path.relative_to(staged) for path in staged.rglob("*") if path.is_file()}
    assert left == {Path("etc/ccm-supervisor/ccm-supervisor.env")}
