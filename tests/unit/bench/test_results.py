"""What was found last is kept, a part at a time, as lines and as a page."""

from pathlib import Path

import pytest

from bench import results
from bench.figures import Value
from bench.plan import Measured, Plan

ABOUT = "How a worker comes back.\n\nMore of it\nover lines.\n"


@pytest.fixture(autouse=True)
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(results, "LINES", tmp_path / "results.jsonl")
    monkeypatch.setattr(results, "PAGE", tmp_path / "RESULTS.md")
    return tmp_path / "RESULTS.md"


def found(value: Value, *broken: str) -> Measured:
    return Measured([{"what": "figure", "s": value}], [*broken])


def sections(page: Path) -> dict[str, str]:
    """The page's parts by name, in their order."""
    _, *parts = page.read_text().split("\n## ")
    return {part.partition("\n")[0]: part for part in parts}


def test_a_part_is_told_with_its_table_and_where_and_how_large_it_ran(page: Path) -> None:
    assert results.recorded() == []
    results.keep("kill", ABOUT, Plan(sizes=(10, 20)), found(1.5, "one write too many"))
    text = page.read_text()
    assert text.startswith("# What was measured last\n")
    section = sections(page)["kill"]
    assert "\nHow a worker comes back. More of it over lines.\n" in section
    assert "\n| figure | 1.5 |\n" in section
    assert ". sizes [10, 20], repeats 3, " in section
    assert " cores (" in section
    assert "**Broken:** one write too many\n" in section


def test_a_part_that_was_not_run_again_keeps_its_section_and_its_place(page: Path) -> None:
    for part in ("initialise", "kill", "routes"):
        results.keep(part, f"About {part}.", Plan(), found(1.0))
    before = sections(page)
    results.keep("kill", "About kill.", Plan(repeats=9), found(2.0))
    after = sections(page)
    assert list(after) == ["initialise", "kill", "routes"]
    assert {part for part in after if after[part] != before[part]} == {"kill"}
    assert "repeats 9" in after["kill"]


def test_the_page_in_the_tree_is_what_its_lines_say(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path(results.__file__).parent
    monkeypatch.setattr(results, "LINES", here / "results.jsonl")
    page = (here / "RESULTS.md").read_text()
    assert page == results.page(results.recorded())
