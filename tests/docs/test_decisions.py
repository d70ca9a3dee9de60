"""Pages of decisions have one form, and the index lists each with its title and its status."""

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, Page

FOLDER = DOCS / "decisions"
PAGES = sorted(FOLDER.glob("[0-9]*.md"))
PARTS = ["Context", "Decision", "Consequences", "Evidence"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_decision_has_the_parts_of_the_template(path: Path) -> None:
    title, *parts = Page.read(path).headings
    assert title.startswith(f"{path.name[:4]}: ")
    assert parts == PARTS


def test_the_index_lists_every_decision() -> None:
    rows = [
        f"| [{path.name[:4]}]({path.name}) | {title[6:]} | {status} |"
        for path in PAGES[1:]
        for title, status in [_title_and_status(path.read_text())]
    ]
    index = (FOLDER / "README.md").read_text().splitlines()
    assert [line for line in index if line.startswith("| [")] == rows


def _title_and_status(text: str) -> tuple[str, str]:
    title, _, status, *_ = text.splitlines()
    return title.removeprefix("# "), status.removeprefix("Status: ").rstrip(".")
