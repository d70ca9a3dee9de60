"""The sandbox and `status --watch` on a terminal of 80 × 24: they fit, and Ctrl-C ends them."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.deadlines import Deadline, timeout

UP = re.compile(r"(?:\x1b\[1A\x1b\[2K)+")
"""How a frame is begun again: one line up for each that it has, but for the first."""


class Terminal:
    """A command on a terminal of its own, and all that it wrote there."""

    def __init__(self, *words: str) -> None:
        self.keys, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environ = {**os.environ, "TERM": "xterm"}
        for name in ("COLUMNS", "LINES"):
            environ.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ccm.cli.main", *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environ,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(slave)
        self.text = ""

    def read(self) -> bool:
        """Whether the command still has the terminal; takes what it wrote."""
        if select.select([self.keys], [], [], 0.2)[0]:
            try:
                self.text += os.read(self.keys, 1 << 16).decode(errors="replace")
            except OSError:  # its other end is closed
                return False
        return True

    def until(self, *parts: str) -> None:
        deadline = Deadline(90)
        while not all(part in self.text for part in parts):
            assert self.read(), self.text
            assert not deadline.has_passed(), self.text[-3000:]

    def interrupt(self) -> int:
        """Press Ctrl-C; the exit code."""
        os.write(self.keys, b"\x03")
        while self.read():
            pass
        return self.process.wait(timeout())


def _take_terminal() -> None:
    """Who is started in the background of a script ignores Ctrl-C, and so would the command."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextmanager
def on_terminal(*words: str) -> Iterator[Terminal]:
    terminal = Terminal(*words)
    try:
        yield terminal
    finally:
        if terminal.process.poll() is None:
            terminal.process.terminate()
            terminal.process.wait(timeout())
        os.close(terminal.keys)


def assert_fits(terminal: Terminal) -> None:
    frames = [found.group().count("1A") + 1 for found in UP.finditer(terminal.text)]
    assert frames
    assert max(frames) < 24
    assert "Traceback" not in terminal.text
    assert terminal.text.rstrip().endswith("\x1b[?25h")  # the cursor is shown again


def test_both_fit_and_end_with_ctrl_c(tmp_path: Path) -> None:
    directory = tmp_path / "box"
    with on_terminal("sandbox", "--nodes=3", f"--directory={directory}") as sandbox:
        sandbox.until("3 of 3 nodes were made ready", "stops and starts the machine", "In another")
        with on_terminal("status", "--watch", f"--runtime-dir={directory}/run") as status:
            status.until("is leader", "Cloud budget", "\x1b[1A")
            assert status.interrupt() == 0
            assert_fits(status)
        assert sandbox.interrupt() == 0
        assert_fits(sandbox)
