"""What another user could have made or can exchange is no directory, and no file, of ours."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ccm.bus.in_flight import InFlightJournal
from ccm.bus.paths import claim
from ccm.checks.host import observe_runtime, unusable_directory
from ccm.directories import make_private
from ccm.errors import ConfigurationFault
from ccm.sandbox.components import find_sandbox
from tests.support.deadlines import timeout

THEIRS = 12345  # a user who is neither root nor us
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")


def foreign_parent(base: Path) -> Path:
    (base / "theirs").mkdir()
    (base / "theirs" / "mine").mkdir(mode=0o700)
    os.chown(base / "theirs", THEIRS, THEIRS)
    return base / "theirs" / "mine"


def link_of_theirs(base: Path) -> Path:
    (base / "real").mkdir()
    (base / "link").symlink_to(base / "real")
    os.chown(base / "link", THEIRS, THEIRS, follow_symlinks=False)
    return base / "link" / "run"


def our_link_into_theirs(base: Path) -> Path:
    (base / "link").symlink_to("./theirs/../theirs")
    return base / "link" / foreign_parent(base).name


def our_link_to_theirs(base: Path) -> Path:
    (base / "ours").symlink_to(link_of_theirs(base).parent.name)
    return base / "ours" / "run"


def open_to_everybody(base: Path) -> Path:
    (base / "open").mkdir()
    (base / "open").chmod(0o777)
    return base / "open" / "run"


def open_to_a_group(base: Path) -> Path:
    os.chown(open_to_everybody(base).parent, -1, THEIRS)
    (base / "open").chmod(0o770)
    return base / "open" / "run"


UNTRUSTED = [
    pytest.param(foreign_parent, "theirs belongs to user 12345", marks=ROOT),
    pytest.param(link_of_theirs, "link belongs to user 12345", marks=ROOT),
    pytest.param(our_link_into_theirs, "theirs belongs to user 12345", marks=ROOT),
    pytest.param(our_link_to_theirs, "link belongs to user 12345", marks=ROOT),
    pytest.param(open_to_everybody, "other users can exchange what is in", marks=()),
    pytest.param(open_to_a_group, "other users can exchange what is in", marks=ROOT),
]


@pytest.mark.parametrize(("made", "why"), UNTRUSTED)
def test_a_path_that_others_can_exchange_is_refused(
    short_dir: Path, made: Callable[[Path], Path], why: str
) -> None:
    directory = made(short_dir)
    with pytest.raises(ConfigurationFault, match=why):
        claim(str(directory))
    assert not (directory / "supervisor.lock").exists()
    for flag, allow_link in (("--runtime-dir", False), ("--state-dir", True)):
        [found] = unusable_directory(flag, directory, allow_link=allow_link)
        assert why in found.message


def test_links_of_our_own_and_shared_directories_with_owners_are_followed(short_dir: Path) -> None:
    (short_dir / "shared").mkdir()
    (short_dir / "shared").chmod(0o1777)
    (short_dir / "link").symlink_to("shared/../shared")
    directory = short_dir / "link" / "run"
    make_private(directory)
    assert not [*unusable_directory("--runtime-dir", directory, allow_link=False)]


def test_a_circle_of_links_is_an_error_of_the_system(short_dir: Path) -> None:
    (short_dir / "a").symlink_to("b")
    (short_dir / "b").symlink_to("a")
    with pytest.raises(ConfigurationFault, match="cannot be used: Too many levels"):
        claim(str(short_dir / "a" / "run"))


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_link_in_the_place_of_a_file_of_ours_is_refused_and_its_target_stays(
    short_dir: Path, link: Callable[[Path, Path], None]
) -> None:
    target, run = short_dir / "precious", short_dir / "run"
    target.write_text("content")
    run.mkdir(mode=0o700)
    link(run / "supervisor.lock", target)
    link(run / "node-0.1.journal", target)
    with pytest.raises(ConfigurationFault, match="cannot be used"):
        claim(str(run))
    with pytest.raises(OSError):
        InFlightJournal(run / "node-0.1.journal")
    assert target.read_text() == "content"


def sandbox(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ccm.cli.main", "sandbox", "--nodes=1", "--exit-when-settled"]
    command.append(f"--directory={directory}")
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout(), check=False)


@ROOT
def test_a_sandbox_does_not_use_the_directory_of_another_user(short_dir: Path) -> None:
    theirs = short_dir / "ccm-sandbox-0"
    theirs.mkdir()
    (theirs / "lock").touch()
    (theirs / "sandbox.json").write_text('{"pid":1,"kubernetes_url":"u","cloud_url":"u"}')
    os.chown(theirs, THEIRS, THEIRS)
    done = sandbox(theirs)
    assert done.returncode == 78
    assert "belongs to user 12345" in done.stderr
    with pytest.raises(ConfigurationFault, match="no sandbox of this user"):
        find_sandbox(str(theirs))
    assert {path.name for path in theirs.iterdir()} == {"lock", "sandbox.json"}


def test_a_sandbox_does_not_empty_a_directory_that_none_has_used(short_dir: Path) -> None:
    short_dir.chmod(0o755)
    (short_dir / "thesis.tex").write_text("content")
    done = sandbox(short_dir)
    assert done.returncode == 78
    assert "it has files that no sandbox wrote" in done.stderr
    assert (short_dir / "thesis.tex").read_text() == "content"
    assert short_dir.stat().st_mode & 0o777 == 0o755


@ROOT
def test_what_another_user_made_is_no_running_supervisor(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below /tmp they may be first; a pipe in the place of the lock would never be open."""
    with (short_dir / "supervisor.lock").open("w") as lock:
        lock.write("4242")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert observe_runtime(str(short_dir)).holder == "4242"
        os.chown(short_dir, THEIRS, THEIRS)
        monkeypatch.setattr("ccm.checks.host.os.geteuid", lambda: 1000)
        assert observe_runtime(str(short_dir)).holder == ""
