"""The runtime directory of a supervisor, and its lock."""

import os
import stat
from pathlib import Path

import pytest

from ccm.bus.paths import claim
from ccm.errors import ConfigurationFault


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_directory_is_made_and_is_ours_alone(short_dir: Path) -> None:
    paths, lock = claim(str(short_dir / "a" / "b"))
    with lock:
        assert paths.directory == short_dir / "a" / "b"
        assert mode(paths.directory) == 0o700
        assert paths.lock.read_text() == f"{os.getpid()}\n"


def test_a_directory_that_others_may_read_is_shut(short_dir: Path) -> None:
    short_dir.chmod(0o755)
    paths, lock = claim(str(short_dir))
    with lock:
        assert mode(paths.directory) == 0o700


def directory_of_length(base: Path, length: int) -> str:
    """A directory in which the control socket's path has this many bytes."""
    return str(base / ("x" * (length - len(os.fsencode(base / "x" / "control.sock")) + 1)))


def test_the_longest_path_that_a_socket_can_have_is_used(short_dir: Path) -> None:
    paths, lock = claim(directory_of_length(short_dir, 107))
    with lock:
        assert len(os.fsencode(paths.control)) == 107


@pytest.mark.parametrize("letter", ["x", "ü"])
def test_a_path_too_long_for_a_socket_is_refused(short_dir: Path, letter: str) -> None:
    too_long = directory_of_length(short_dir, 108).replace("x", letter)
    with pytest.raises(ConfigurationFault, match="too long"):
        claim(too_long)
    assert list(short_dir.iterdir()) == []


def test_a_link_in_its_place_is_refused(short_dir: Path) -> None:
    (short_dir / "link").symlink_to(short_dir)
    with pytest.raises(ConfigurationFault, match="cannot be used"):
        claim(str(short_dir / "link"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_the_directory_of_another_user_is_refused(short_dir: Path) -> None:
    foreign = short_dir / "theirs"
    foreign.mkdir(mode=0o777)
    os.chown(foreign, 12345, 12345)
    with pytest.raises(ConfigurationFault, match="belongs to user 12345"):
        claim(str(foreign))
    assert list(foreign.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(ConfigurationFault, match="cannot be used"):
        claim("/proc/self/new")  # where root may not write either
