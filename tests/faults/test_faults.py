"""The published fault table says what the tests declare, no more and no less."""

from tests.faults.rows import CONTROLLERS, PAGE, read_rows, table


def test_the_page_is_what_the_tests_declare() -> None:
    assert PAGE.read_text().endswith(table()), "run `make docs`"


def test_each_row_is_whole_and_stands_once() -> None:
    rows = read_rows()
    assert len(rows) >= 60
    assert {row.controller for row in rows} <= set(CONTROLLERS)
    assert all(all((row.what, row.then, row.within, row.lost)) for row in rows)
    keys = [(row.controller, row.what) for row in rows]
    assert sorted(keys) == sorted(set(keys))
