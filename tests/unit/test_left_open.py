"""A test that fails with a socket open turns no other one red."""

import subprocess
import sys
from pathlib import Path

from tests.support import deadlines

TESTS = """
import gc
import socket

def test_fails():
    left = socket.socket()
    loop = [left]
    loop.append(loop)
    assert not left

def test_passes():
    gc.collect()
"""


def test_what_a_failed_test_left_open_is_no_failure_of_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    options = ("-q", "-p", "no:cacheprovider", "-p", "tests.support.left_open", "-W", "error")
    done = subprocess.run(
        (sys.executable, "-m", "pytest", *options, str(tmp_path)),
        env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=deadlines.timeout(),
        check=False,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout
