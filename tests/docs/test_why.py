"""The page that compares has its figures from what was measured, and from nowhere else."""

import re

import pytest

from tests.docs.pages import DOCS, ROOT, table_rows

RESULTS = (ROOT / "bench" / "RESULTS.md").read_text()
MEASURED = table_rows("why.md", "measured")[1:]
LEFT = table_rows("why.md", "differences")[1:]


def figures(section: str) -> set[str]:
    """The medians in the tables of a section."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", RESULTS, re.DOTALL | re.MULTILINE)
    cells = [cell for line in text.splitlines() if line[:1] == "|" for cell in line.split("|")]
    return {cell.split()[0] for cell in cells if cell.strip()}


@pytest.mark.parametrize(("what", "figure", "section"), MEASURED)
def test_a_figure_is_in_its_section_of_the_results(what: str, figure: str, section: str) -> None:
    assert figure in figures(section), what


def test_the_counts_of_differences_are_those_of_the_comparison() -> None:
    page = (DOCS / "providers" / "aws-differences.md").read_text()
    counts = [len(re.findall(r"^\| ", part, re.MULTILINE)) - 1 for part in page.split("\n## ")[1:]]
    assert [int(rows) for _, rows in LEFT] == counts
