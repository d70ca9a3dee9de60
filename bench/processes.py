"""What processes cost, read from /proc: CPU seconds and memory, each process and its children."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> Iterator[int]:
    """This process and all that descend from it."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in _text(children).split():
            yield from family(int(child))


def cpu_seconds(pid: int) -> float:
    """User and system time so far; 0 when the process is gone."""
    fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS if fields else 0.0


def pss_mib(pid: int) -> float:
    """Memory that is this process's own, and its share of what it has in common with others."""
    for line in _text(Path(f"/proc/{pid}/smaps_rollup")).splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Of some processes together."""

    cpu: float
    pss: float

    @classmethod
    def of(cls, pid: int) -> "Cost":
        members = list(family(pid))
        return cls(sum(map(cpu_seconds, members)), sum(map(pss_mib, members)))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
