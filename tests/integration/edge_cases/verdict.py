"""What the tests of a row say about it, as one line of the table."""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.support.rows import Row

SERVERS = ("sandbox", "real")


@dataclass(frozen=True, slots=True)
class Verdict:
    """`result` is for people; only what is good lets the whole table pass."""

    result: str
    is_good: bool


def judge(row: Row, results: Mapping[str, str], difference: str) -> Verdict:
    """The verdict on one row; `results` are those of its tests, by node id."""
    if "failed" in results.values():
        return Verdict("FAILED", False)
    if not results:
        return Verdict("differs", True) if difference else Verdict("MISSING", False)
    for server in SERVERS:
        if row.needs_both and not any(server in _case(test) for test in results):
            return Verdict(f"MISSING on {server}", False)
    if "passed" not in results.values():
        return Verdict("NOT RUN", False)
    skipped = list(results.values()).count("skipped")
    reported = f"passed, {skipped} not run" if skipped else "passed"
    return Verdict(f"{reported}, differs" if difference else reported, True)


def _case(test: str) -> list[str]:
    """The parts of the id of a test's case."""
    return test.partition("[")[2].rstrip("]").split("-")
