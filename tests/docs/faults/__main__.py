"""Writes the pages of the fault table, for `make docs`; `break [TEXT…]` shows which tests bite.

Both keep `seen.tsv`: the one drops what has changed, the other writes what it saw. With `--unseen`
`break` leaves out what it has seen before.
"""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .cures import cures_of
from .rows import PASSING, TESTS, index, pages, passing, read_rows
from .seen import FILE, is_seen, read_seen, record, table_of_seen
from .without import Tree


def show_bites(texts: Sequence[str], only_unseen: bool) -> int:
    """Take its cure from each row that has one of these texts; 1 when a test does not bite."""
    rows = [
        row
        for row in read_rows()
        if not texts or any(text in row.name or text in row.test for text in texts)
        if not (only_unseen and is_seen(row))
    ]
    cured = [row for row in rows if cures_of(row)]
    counts = Counter({"without cure": len(rows) - len(cured)})
    with tempfile.TemporaryDirectory() as directory:
        tree = Tree.copy(Path(directory, "tree"), cured)
        for row in cured:
            began = time.monotonic()
            verdict, why = tree.verdict(row)
            counts[verdict] += 1
            if verdict != "not run":
                record(row, bites=verdict == "bites")
            seconds = time.monotonic() - began
            print(f"{verdict:13} {seconds:5.1f} s  {row.name}\n    {' '.join(why.split())[:200]}")
            sys.stdout.flush()
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return int(bool(counts["does not bite"] or counts["fails anyway"]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["break"]:
        texts = [text for text in sys.argv[2:] if text != "--unseen"]
        sys.exit(show_bites(texts, "--unseen" in sys.argv))
    FILE.write_text(table_of_seen(read_seen()), encoding="utf-8")
    folder = TESTS.parent / "docs" / "faults"
    for name, text in pages().items():
        Path(folder, name).write_text(text, encoding="utf-8")
    for name in PASSING:
        page = folder.with_name(name)
        words = page.read_text(encoding="utf-8").partition("\n## ")[0]
        page.write_text(f"{words.rstrip()}\n\n{passing(name)}", encoding="utf-8")
    print(index(), end="")
