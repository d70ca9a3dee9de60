"""The records that docs/logs.md promises: their messages are in the code, as constants."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, table_rows

CODE = re.compile(r"`([^`]+)`")


@cache
def constants() -> set[str]:
    """All texts in the code of workers and of the supervisor."""
    files = [path for folder in ("workers", "ccm") for path in (ROOT / folder).rglob("*.py")]
    return {text for path in files for text in _texts(path)}


def _texts(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return [one.value for one in nodes if isinstance(one, ast.Constant) and type(one.value) is str]


@pytest.mark.parametrize("table", ["done", "failing"])
def test_every_message_is_one_of_the_code(table: str) -> None:
    reported = {name for row in table_rows("logs.md", table)[1:] for name in CODE.findall(row[0])}
    assert reported - constants() == set()
