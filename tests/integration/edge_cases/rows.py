"""The rows of upstream's edge cases, which tests carry them, and where we differ on purpose.

A test carries a row when the id of one of its cases begins with the row's: `id="CN1"`,
`id="VH3-comma"`, `id="SH5-SH6"`, or `@row("SN2")` where there are no cases.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = HERE.parents[1]
DIFFERENCES = TESTS.parent / "docs" / "differences.md"


@dataclass(frozen=True, slots=True)
class Row:
    """One edge case. `needs_both`: an API server decides it, so both of ours are asked."""

    id: str
    needs_both: bool
    says: str


def read_rows() -> dict[str, Row]:
    """The table, in its order."""
    with (HERE / "rows.tsv").open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {
            line["id"]: Row(line["id"], line["servers"] == "both", line["row"]) for line in lines
        }


_GROUPS = "|".join(sorted({key[:2] for key in read_rows()}))
_ID = re.compile(rf"(?<![A-Za-z0-9])(?:{_GROUPS})\d+(?![A-Za-z0-9])")
_QUOTED = re.compile(rf'"((?:{_GROUPS})\d+[^"]*)"')


def ids_in(text: str) -> set[str]:
    """What in this text looks like the id of a row."""
    return set(_ID.findall(text))


def row(*ids: str) -> pytest.MarkDecorator:
    """Let a test without cases of its own carry these rows."""
    return pytest.mark.parametrize((), [pytest.param(id="-".join(ids))])


def named() -> Iterator[tuple[str, str]]:
    """Row and file for each row that stands at the begin of a quoted text in a test."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for quoted in _QUOTED.findall(path.read_text(encoding="utf-8")):
            for found in ids_in(quoted):
                yield found, str(path.relative_to(TESTS))


def differences() -> dict[str, str]:
    """Row → the section of `docs/differences.md` that says why we do otherwise."""
    found: dict[str, str] = {}
    section = ""
    for line in DIFFERENCES.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            title = line.lstrip("# ").lower()
            section = re.sub(r"[^\w -]", "", title).replace(" ", "-")
        for key in ids_in(line):
            found[key] = f"docs/differences.md#{section}"
    return found
