"""A process that gives credentials, with a limit to its time and to what it prints.

As a program, with the limit and a command, for who reads one of its pipes after the other. It
imports nothing of ours, and is run by its path.
"""

import os
import selectors
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from subprocess import PIPE, Popen, TimeoutExpired
from typing import Any

TIMEOUT = 30.0  # seconds until it is ended
MAX_PRINTED = 1 << 20  # bytes of its output
MAX_ERRORS = 1000  # bytes of its errors, the last ones
_AT_ONCE = 64 << 10  # bytes of one read


class LimitedProcess(Popen[bytes]):
    """Ended with all that it has started once it takes too long or prints too much.

    It has failed then, and its errors say why.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        timeout: float | None = None,
        most: int | None = None,
        **options: Any,
    ) -> None:
        """It may print `most` bytes. With `process_group=None` it may ask at our terminal."""
        self._timeout = TIMEOUT if timeout is None else timeout
        self._most = MAX_PRINTED if most is None else most
        super().__init__(command, **{"process_group": 0, **options, "stdout": PIPE, "stderr": PIPE})

    def communicate(self, *_: Any, **__: Any) -> tuple[bytes, bytes]:
        """What it prints, and what is left of its errors, as text; gives it no input."""
        printed, errors = bytearray(), bytearray()
        with self:
            try:
                self._read(time.monotonic() + self._timeout, printed, errors)
            except TimeoutExpired:
                why = f"not ended within {self._timeout:g} s"
            except ValueError as too_much:
                why = str(too_much)
            else:
                return bytes(printed), errors.decode(errors="replace").encode()
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.kill()
        self.returncode = self.returncode or 1
        return b"", why.encode()

    def _read(self, deadline: float, printed: bytearray, errors: bytearray) -> None:
        """Both pipes to their ends, and wait for its own; raises `TimeoutExpired`, `ValueError`."""
        assert self.stdout
        assert self.stderr
        with selectors.DefaultSelector() as selector:
            selector.register(self.stdout, selectors.EVENT_READ, printed)
            selector.register(self.stderr, selectors.EVENT_READ, errors)
            while selector.get_map():
                if (left := deadline - time.monotonic()) <= 0:
                    raise TimeoutExpired(self.args, 0)
                for key, _ in selector.select(left):
                    if not (data := os.read(key.fd, _AT_ONCE)):
                        selector.unregister(key.fileobj)
                    key.data.extend(data)
                if len(printed) > self._most:
                    raise ValueError(f"it printed more than {self._most} bytes")
                del errors[:-MAX_ERRORS]
        self.wait(max(0.0, deadline - time.monotonic()))


def main(limit: str, *command: str) -> int:
    """Run the command, print what it prints, and return its code."""
    process = LimitedProcess(command, timeout=float(limit))
    printed, errors = process.communicate()
    sys.stdout.buffer.write(printed)
    sys.stderr.buffer.write(errors)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
