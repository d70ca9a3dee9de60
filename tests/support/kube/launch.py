"""Become the given command, as a process that the kernel kills when its parent's thread ends.

Run as `python -I -S launch.py <parent pid> <command> <argument>...`. A program of its own, and
not a `preexec_fn`, because Python code between fork and exec can deadlock under threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Replace this process with `command`."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent ended before its child began")
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
