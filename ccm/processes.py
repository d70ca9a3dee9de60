"""What every process of ours needs of the kernel: death with its parent, privacy, own figures."""

import ctypes
import os
import resource
import signal
from contextlib import suppress
from pathlib import Path

PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")  # bytes
OOM_SCORE = 200  # thousandths of the memory by which a worker seems larger than it is
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Let the kernel send `number` when the process `parent` ends; end now if it has ended already.

    The kernel counts the end of the *thread* that started this process as the end of the parent.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def keep_memory_private() -> None:
    """Credentials in memory get into no core dump, and other processes of this user cannot look."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def go_first_without_memory() -> None:
    """Let the kernel end this process, and its children, before its parent when memory is used up.

    `keep_memory_private` has to follow: who keeps its memory private cannot write its score.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    score = Path("/proc/self/oom_score_adj")
    with suppress(OSError):
        score.write_text(str(min(int(score.read_text()) + OOM_SCORE, 1000)))


def adopt_orphans() -> None:
    """Be from now on the parent of descendants whose own parent ends; raises `OSError`."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "orphans cannot be adopted")


def zombies() -> set[int]:
    """Children that ended and that no one has waited for yet."""
    ended = set[int]()
    for listed in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            ended |= {pid for pid in map(int, listed.read_text().split()) if _has_ended(pid)}
    return ended


def _has_ended(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


def open_files() -> tuple[int, int]:
    """How many file descriptors this process has open, and how many it may have."""
    return len(os.listdir("/proc/self/fd")), open_files_limit()


def open_files_limit() -> int:
    """How many file descriptors this process may have."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def thread_count() -> int:
    """How many threads this process has, those of libraries included."""
    return len(os.listdir("/proc/self/task"))


def resident_bytes() -> int:
    """Memory of this process that is in RAM, shared pages included."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * PAGE_SIZE
