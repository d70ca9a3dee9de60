"""Every row of the table has a test, is a documented difference, or says why it is open."""

from tests.support.rows import CLOUDS, differences, named, read_rows


def test_every_row_is_held_by_a_test_or_says_why_not() -> None:
    rows = read_rows()
    accounted = {key for key, _ in named()} | differences().keys()
    assert {key for key, row in rows.items() if not row.open} - accounted == set()


def test_no_test_and_no_difference_names_a_row_that_is_not_there() -> None:
    rows = read_rows()
    assert [(key, where) for key, where in named() if key not in rows] == []
    assert differences().keys() <= rows.keys()


def test_the_table_has_each_row_once_with_words() -> None:
    rows = read_rows()
    assert len([row for row in rows.values() if not row.cloud]) == 164
    assert {row.cloud for row in rows.values()} == {"", *CLOUDS.values()}
    assert all(row.says for row in rows.values())
