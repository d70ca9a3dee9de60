"""The tables in `docs/` say what the code does."""

from pathlib import Path

from ccm.decide.children import TABLE, WorkerEvent, WorkerState

DOCS = Path(__file__).parents[2] / "docs"


def rows(page: str, table: str) -> list[list[str]]:
    """The cells of the marked table, headings first."""
    text = (DOCS / page).read_text().split(f"<!-- table: {table} -->")[1].split("<!-- end -->")[0]
    lines = [line for line in text.strip().splitlines() if not line.startswith("|---")]
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]


def test_the_state_table_is_the_one_in_the_code() -> None:
    (_, *events), *states = rows("supervision.md", "states")
    told = {
        (WorkerState(state), WorkerEvent(event)): WorkerState(after)
        for state, *cells in states
        for event, after in zip(events, cells, strict=True)
        if after
    }
    assert told == TABLE
