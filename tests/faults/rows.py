"""The fault table: what becomes of which fault, and the test that shows it."""

import ast
import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T", bound=Callable[..., object])

HERE = Path(__file__).parent
TESTS = HERE.parent


@dataclass(frozen=True, slots=True)
class FaultRow:
    """A fault, whom it meets, what happens then, for how long at most, and what is lost."""

    fault: str
    controller: str  # as `--controllers` names it, `all` or `supervisor`
    then: str
    within: str
    lost: str
    test: str  # file and function, as pytest takes it, relative to the folder of tests


def fault_row(
    what: str, controller: str, *, then: str, within: str, lost: str = "nothing"
) -> Callable[[T], T]:
    """Make a row of docs/faults.md of the test below; all arguments are literals."""
    return lambda test: test


def read_rows() -> list[FaultRow]:
    """Every row, ordered by controller and fault."""
    with (HERE / "rows.tsv").open(encoding="utf-8", newline="") as file:
        told = [FaultRow(**line) for line in csv.DictReader(file, delimiter="\t", quoting=3)]
    found = [row for path in sorted(TESTS.rglob("test_*.py")) for row in _rows_of(path)]
    return sorted([*told, *found], key=lambda row: (row.controller, row.fault))


def exists(row: FaultRow) -> bool:
    """Whether its test does."""
    file, _, name = row.test.partition("::")
    path = TESTS / file
    return path.is_file() and f"def {name}(" in path.read_text(encoding="utf-8")


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


def _rows_of(path: Path) -> Iterator[FaultRow]:
    text = path.read_text(encoding="utf-8")
    if "@fault_row" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and getattr(mark.func, "id", "") == "fault_row":
                what, controller = (str(ast.literal_eval(each)) for each in mark.args)
                said = {str(each.arg): str(ast.literal_eval(each.value)) for each in mark.keywords}
                lost = said.get("lost", "nothing")
                test = f"{path.relative_to(TESTS)}::{node.name}"
                yield FaultRow(what, controller, said["then"], said["within"], lost, test)
