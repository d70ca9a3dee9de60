"""The rows of each cloud's edge cases: a test names it, or it is said to be open."""

import csv
import re
from pathlib import Path

import pytest

CLOUDS = sorted(file.parent for file in Path(__file__).parent.glob("*/rows.tsv"))
ROW = r"\b{}\d+\b"


@pytest.mark.parametrize("cloud", CLOUDS, ids=lambda cloud: cloud.name)
def test_each_row_is_held_by_a_test_or_said_to_be_open(cloud: Path) -> None:
    rows = list(csv.DictReader((cloud / "rows.tsv").read_text().splitlines(), delimiter="\t"))
    prefix = rows[0]["id"].rstrip("0123456789")
    texts = [file.read_text() for file in cloud.glob("test_*.py")]
    named = {key for text in texts for key in re.findall(ROW.format(prefix), text)}
    assert {row["id"] for row in rows if not row["open"]} <= named <= {row["id"] for row in rows}
