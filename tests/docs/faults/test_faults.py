"""The published fault table is what tests show."""

from .rows import GROUPS, PASSING, TESTS, exists, index, pages, passing, read_rows

DOCS = TESTS.parent / "docs"


def test_the_pages_are_made_of_the_rows() -> None:
    assert (DOCS / "faults.md").read_text(encoding="utf-8").endswith(index()), "run `make docs`"
    for page in PASSING:
        text = (DOCS / page).read_text(encoding="utf-8")
        assert text.endswith(passing(page)), "run `make docs`"
    written = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "faults").iterdir()}
    assert written == pages(), "run `make docs`"


def test_every_row_names_a_test_that_exists() -> None:
    assert [row.test for row in read_rows() if not exists(row)] == []


def test_every_fault_is_reported_once_and_they_are_many() -> None:
    reported = [(row.controller, row.fault) for row in read_rows()]
    assert len(reported) == len(set(reported)) >= 230


def test_every_row_belongs_to_a_symptom_and_is_a_sentence_a_cell() -> None:
    rows = read_rows()
    assert {row.group for row in rows} == GROUPS.keys()
    cells = [cell for row in rows for cell in (row.fault, row.then, row.within, row.lost)]
    assert [cell for cell in cells if ". " in cell or len(cell.split()) > 35] == []
