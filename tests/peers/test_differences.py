"""The published lists of differences are what the comparisons know."""

from pathlib import Path

import pytest

from tests.peers.differences import ABSENT, CLOUDS, Difference, compare, read_rows, table

PAGES = Path(__file__).parents[2] / "docs" / "providers"


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_page_is_made_of_the_rows(cloud: str) -> None:
    page = (PAGES / f"{cloud}-differences.md").read_text(encoding="utf-8")
    assert page.endswith(table(cloud)), "run `make docs`"


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_row_has_its_reason(cloud: str) -> None:
    assert [row.where for row in read_rows(cloud) if not (row.what and row.why)] == []


def test_an_object_that_one_side_lacks_is_one_difference() -> None:
    upstream = {"classic a scheme": "1", "network b scheme": "1", "network b listener 80 Port": "1"}
    ours = {
        "network b scheme": "2",
        "network b listener 80 Port": "1",
        "network b listener 81 X": "",
    }
    assert [*compare(upstream, ours)] == [
        Difference("classic a", "there", ABSENT),
        Difference("network b listener 81", ABSENT, "there"),
        Difference("network b scheme", "1", "2"),
    ]
