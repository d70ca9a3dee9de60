"""Control groups of Linux, version 1 or 2, for what is to have little of the host in a test."""

import os
from pathlib import Path
from typing import Self

from tests.support.running import wait_for

PERIOD = 100_000  # microseconds


def why_no_cgroups(controller: str) -> str:
    """What is missing on this host for groups of `memory` or `cpu`; empty when nothing is."""
    root = _root(controller)
    if not root:
        return f"no control groups for {controller} are mounted"
    return "" if os.access(root, os.W_OK) else f"{root} cannot be written: run as root"


class ControlGroup:
    """One group of one controller, removed at the end of the `with` block."""

    def __init__(self, controller: str) -> None:
        root = _root(controller)
        assert root, controller
        self._is_second = (root / "cgroup.controllers").exists()
        if self._is_second:
            (root / "cgroup.subtree_control").write_text(f"+{controller}")
        self.path = root / f"ccm-{controller}-{os.getpid()}"

    def __enter__(self) -> Self:
        self.path.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        wait_for("all in it have ended", self._is_removed)

    def command(self, command: list[str]) -> list[str]:
        """What runs a command in it, with all that this starts."""
        script = f'echo $$ > {self.path}/cgroup.procs && exec "$@"'
        return ["sh", "-c", script, "sh", *command]

    def limit_memory(self, size_bytes: int) -> None:
        """The kernel kills one of its processes rather than to give it more."""
        name = "memory.max" if self._is_second else "memory.limit_in_bytes"
        (self.path / name).write_text(str(size_bytes))

    def limit_cpu(self, share: float | None) -> None:
        """Of one processor; None for as much as there is."""
        quota = int(share * PERIOD) if share else None
        if self._is_second:
            (self.path / "cpu.max").write_text(f"{quota or 'max'} {PERIOD}")
        else:
            (self.path / "cpu.cfs_quota_us").write_text(str(quota or -1))

    def _is_removed(self) -> bool:
        try:
            self.path.rmdir()
        except OSError:
            return False
        return True


def _root(controller: str) -> Path | None:
    """Where groups with this controller are made."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        root = Path(place)
        if kind == "cgroup" and controller in options.split(","):
            return root
        listed = root / "cgroup.controllers"
        if kind == "cgroup2" and listed.exists() and controller in listed.read_text().split():
            return root
    return None
