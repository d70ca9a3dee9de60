"""The published fault table is what the tests show."""

from .rows import TESTS, read_rows, table

PAGE = TESTS.parent / "docs" / "faults.md"


def test_the_page_says_what_the_tests_show() -> None:
    assert PAGE.read_text(encoding="utf-8").endswith(table()), "run `make docs`"


def test_every_fault_is_told_once() -> None:
    said = [(row.controller, row.what) for row in read_rows()]
    assert len(said) == len(set(said))
