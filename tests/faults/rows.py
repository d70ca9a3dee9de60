"""The fault table: which test shows what becomes of which fault, read off the tests themselves."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T", bound=Callable[..., object])
TESTS = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class FaultRow:
    """A fault, whom it meets, what happens then, for how long at most, and what is lost."""

    what: str
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
    found = [row for path in sorted(TESTS.rglob("test_*.py")) for row in _rows_of(path)]
    return sorted(found, key=lambda row: (row.controller, row.what))


def table() -> str:
    """The rows as a table in Markdown, a heading above each controller's."""
    lines: list[str] = []
    heading = ""
    for row in read_rows():
        if row.controller != heading:
            heading = row.controller
            lines += ["", f"## {heading}", "", "| fault | what happens | within | lost | test |"]
            lines += ["|---|---|---|---|---|"]
        file, _, name = row.test.partition("::")
        link = f"[{name}](../tests/{file})"
        lines.append(f"| {row.what} | {row.then} | {row.within} | {row.lost} | {link} |")
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
                said = {each.arg: str(ast.literal_eval(each.value)) for each in mark.keywords}
                lost = said.get("lost", "nothing")
                test = f"{path.relative_to(TESTS)}::{node.name}"
                yield FaultRow(what, controller, said["then"], said["within"], lost, test)
