"""Which tests of the fault table were seen to fail without their cures: `seen.tsv`.

`make bites` writes it, a line a row. What has another test or other cures than it was seen with
is not seen yet; `make docs` says so in the table.
"""

import fcntl
from collections.abc import Collection
from hashlib import sha256

from .cures import HERE, cures_of
from .rows import FaultRow, read_rows

FILE = HERE / "seen.tsv"


def read_seen() -> set[str]:
    """Lines of the rows that were seen."""
    return set(FILE.read_text(encoding="utf-8").splitlines())


def table_of_seen(seen: Collection[str]) -> str:
    """A line for each row: that of `seen`, or that the row was not seen yet."""
    lines = (_seen(row) if _seen(row) in seen else _not_seen(row) for row in read_rows())
    return "".join(f"{line}\n" for line in lines)


def is_seen(row: FaultRow) -> bool:
    return _seen(row) in read_seen()


def record(row: FaultRow, bites: bool) -> None:
    """At once, so that a run that ends early keeps what it saw, and one beside it loses nothing."""
    with FILE.open(encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        lines = file.read().splitlines()
        now = _seen(row) if bites else _not_seen(row)
        lines = [now if line.endswith(f"\t{row.name}") else line for line in lines]
        FILE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _seen(row: FaultRow) -> str:
    digest = sha256(repr((row.test, cures_of(row))).encode()).hexdigest()
    return f"seen\t{digest[:8]}\t{row.name}"


def _not_seen(row: FaultRow) -> str:
    return f"{'not yet' if cures_of(row) else 'no cure'}\t-\t{row.name}"
