"""Rows of the published fault table, and how a test declares the one that it shows.

    @fault("SIGKILL of a worker", "node", "its keys go on in a new process", "≤ 2 ×")

The rows are read from the source, so that the page is written without importing a test.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TypeVar

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "faults.md"
CONTROLLERS = ("all", "node", "service", "route", "volume-label", "supervisor", "operator")
"""Whom a fault befalls, in the order of the page; `operator` is the person before a terminal."""

Test = TypeVar("Test", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Row:
    """One fault: whom it befalls, what happens then, for how long, and what is lost.

    `test` is the path of the test below the root of the tree, and its name.
    """

    what: str
    controller: str
    then: str
    within: str
    lost: str
    test: str

    def cells(self) -> str:
        """The row in Markdown; the test's name links to its file."""
        path, _, name = self.test.partition("::")
        link = f"[`{name}`](../{path})"
        return f"| {self.what} | {self.then} | {self.within} | {self.lost} | {link} |"


def fault(
    what: str, controller: str, then: str, within: str, lost: str = "nothing"
) -> Callable[[Test], Test]:
    """Declare that the decorated test shows this row; all arguments are literals.

    `within` says how long the fault's effect lasts, `lost` what does not come back.
    """

    def keep(test: Test) -> Test:
        return test

    return keep


def read_rows() -> list[Row]:
    """All rows, in the order of the page."""
    rows = [row for path in sorted(TESTS.rglob("test_*.py")) for row in _rows_in(path)]
    return sorted(rows, key=lambda row: CONTROLLERS.index(row.controller))


def table() -> str:
    """What follows the introduction of the page."""
    rows, lines = read_rows(), list[str]()
    for controller in CONTROLLERS:
        if own := [row.cells() for row in rows if row.controller == controller]:
            heading = f"## {controller.replace('-', ' ').capitalize()}"
            lines += [heading, "", "| Fault | What happens | How long | Lost | Shown by |"]
            lines += ["|---|---|---|---|---|", *own, ""]
    return "\n".join(lines)


def _rows_in(path: Path) -> Iterator[Row]:
    source = path.read_text()
    if "@fault(" not in source:
        return
    place = path.relative_to(TESTS.parent).as_posix()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for call in node.decorator_list:
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "fault":
                    yield _row(call, f"{place}::{node.name}")


def _row(call: ast.Call, test: str) -> Row:
    positional = [ast.literal_eval(argument) for argument in call.args]
    named = {str(item.arg): ast.literal_eval(item.value) for item in call.keywords}
    bound = signature(fault).bind(*positional, **named)
    bound.apply_defaults()
    return Row(**bound.arguments, test=test)
