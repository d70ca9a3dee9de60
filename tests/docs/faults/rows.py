"""The fault table: what becomes of which fault, and the test that shows it."""

import csv
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parents[1]


@dataclass(frozen=True, slots=True)
class FaultRow:
    """A fault, whom it meets, what happens then, for how long at most, and what is lost."""

    fault: str
    controller: str  # as `--controllers` names it, `all` or `supervisor`
    then: str
    within: str
    lost: str
    test: str  # file, function and case, as pytest takes it, relative to the folder of tests

    @property
    def name(self) -> str:
        """As no other row is called."""
        return f"{self.controller}: {self.fault}"


def read_rows() -> list[FaultRow]:
    """Every row, ordered by controller and fault."""
    with (HERE / "rows.tsv").open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        rows = [FaultRow(**line) for line in lines]
    return sorted(rows, key=lambda row: (row.controller, row.fault))


def exists(row: FaultRow) -> bool:
    """Whether its test does."""
    file, _, name = row.test.partition("::")
    path = TESTS / file
    return path.is_file() and f"def {name.partition('[')[0]}(" in path.read_text(encoding="utf-8")


def table() -> str:
    """The rows as tables in Markdown, one a controller."""
    lines: list[str] = []
    heading = ""
    for row in read_rows():
        if row.controller != heading:
            heading = row.controller
            lines += ["", f"## {heading}", "", "| fault | what happens | within | lost | test |"]
            lines += ["|---|---|---|---|---|"]
        file, _, name = row.test.partition("::")
        link = f"[{name}](../tests/{file})"
        lines.append(f"| {row.fault} | {row.then} | {row.within} | {row.lost} | {link} |")
    return "\n".join(lines[1:]) + "\n"
