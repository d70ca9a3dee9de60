"""The published fault table is what tests show."""

from .rows import TESTS, exists, read_rows, table

PAGE = TESTS.parent / "docs" / "faults.md"


def test_the_page_is_made_of_the_rows() -> None:
    assert PAGE.read_text(encoding="utf-8").endswith(table()), "run `make docs`"


def test_every_row_names_a_test_that_exists() -> None:
    assert [row.test for row in read_rows() if not exists(row)] == []


def test_every_fault_is_reported_once_and_they_are_many() -> None:
    reported = [(row.controller, row.fault) for row in read_rows()]
    assert len(reported) == len(set(reported)) >= 60
