"""The rows of Proxmox' edge cases: each is held by a test that names it, or said to be open."""

import csv
import re
from pathlib import Path

HERE = Path(__file__).parent
ROWS = list(csv.DictReader((HERE / "rows.tsv").read_text().splitlines(), delimiter="\t"))
NAMED = {
    key
    for file in HERE.glob("test_*.py")
    if file.name != Path(__file__).name
    for key in re.findall(r"\bPX\d+\b", file.read_text())
}


def test_each_row_is_held_by_a_test_or_said_to_be_open() -> None:
    assert {row["id"] for row in ROWS if not row["open"]} <= NAMED <= {row["id"] for row in ROWS}
