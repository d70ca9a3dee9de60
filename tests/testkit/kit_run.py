"""Running the kit as an author of a provider does: pytest in a process and a folder of its own."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

ROW = re.compile(r"(?P<area>[a-z ]+?)\s{2,}(?P<shown>\d+)\s+(?P<not_shown>\d+)\s+(?P<failed>\d+)")


@dataclass(frozen=True)
class Run:
    """How it ended and what it printed."""

    code: int
    output: str

    def count(self, column: str, area: str = "all") -> int:
        """A number in the table of the report."""
        rows = [ROW.fullmatch(line.strip()) for line in self.output.splitlines()]
        found = [int(row[column]) for row in rows if row and row["area"] == area]
        assert len(found) == 1, self.output
        return found[0]

    def not_shown(self) -> set[str]:
        """The lines below the table, without the names of the tests."""
        _, _, rest = self.output.partition("\nnot shown:\n")
        lines = [line.strip() for line in takewhile(is_indented, rest.splitlines())]
        return {f"{area}: {reason}" for area, _, reason in (line.split(": ", 2) for line in lines)}


def is_indented(line: str) -> bool:
    return line.startswith("  ")


def run_pytest(directory: Path, *arguments: str, path: Path | None = None) -> Run:
    """`python -m pytest` in that folder, with `path` to import from."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments]
    done = subprocess.run(
        command,
        cwd=directory,
        env={**ours, "PYTHONPATH": str(path or directory)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    return Run(done.returncode, done.stdout + done.stderr)
