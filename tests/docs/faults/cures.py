"""The cure of each fault: the lines of the product without which its test must fail.

A cure says what its lines become when it is taken away. The text of a cure must occur exactly once
in its file, so that none rots silently. A row that several cures name is broken by all of them at
once: what is guarded twice.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .rows import FaultRow

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


@dataclass(frozen=True, slots=True)
class Cure:
    """Lines of the product, what becomes of them without the cure, and whose cure they are."""

    rows: tuple[str, ...]  # names of rows, see `FaultRow.name`
    file: str  # relative to the root of the tree
    old: str
    new: str

    def taken_from(self, source: str) -> str:
        """The source without this cure."""
        if (count := source.count(self.old)) != 1:
            raise ValueError(f"{self.file} has {count} times, not once:\n{self.old}")
        return source.replace(self.old, self.new)


@cache
def read_cures() -> Sequence[Cure]:
    """Every cure of every file."""
    files = [tomllib.loads(path.read_text()) for path in sorted((HERE / "cures").glob("*.toml"))]
    return [
        Cure(tuple(entry["rows"]), entry["file"], entry["old"], entry["new"])
        for file in files
        for entry in file["cure"]
    ]


def cures_of(row: FaultRow) -> list[Cure]:
    """All that guards against this fault."""
    return [cure for cure in read_cures() if row.name in cure.rows]


def without_cure() -> list[str]:
    """Names of the rows without a cure, below a comment with the reason: this list only shrinks."""
    lines = (HERE / "cures" / "missing.txt").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]
