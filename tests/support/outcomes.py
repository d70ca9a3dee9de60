"""What came out of a run of pytest, from its report log, and the summary of two runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from tests.support.running import WITH_LONG

Json = dict[str, Any]

ENDED = {0, 1, 5}
"""Exit codes of a pytest that ran what there was: all passed, some failed, none there."""
SLOWEST = 20
LINES = 56
"""How many lines all failures have together, so that they are within the last 80."""
LOG_SECTION = "log of "
"""How the sections begin that hold the end of a log of the product."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a test failed, and the ends of the product's logs."""

    text: str
    logs: tuple[tuple[str, str], ...] = ()

    def lines(self, count: int) -> Iterator[str]:
        """So many lines at the most: the assertion first, then the last lines of the logs."""
        said = [line for line in self.text.splitlines() if line.startswith("E  ")]
        said = said or self.text.splitlines()[-3:]
        room = max(count - min(len(said), count // 2), 0)
        yield from said[: count - room]
        for name, text in self.logs:
            yield name
            yield from text.splitlines()[-max(room // len(self.logs) - 1, 1) :]


@dataclass(slots=True)
class Outcomes:
    """Of one run or several: what passed, failed and was skipped, by the tests' IDs."""

    passed: set[str] = field(default_factory=set)
    failed: dict[str, Failure] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)  # with the reason
    seconds: Counter[str] = field(default_factory=Counter)
    is_complete: bool = True

    def __or__(self, other: Outcomes) -> Outcomes:
        return Outcomes(
            self.passed | other.passed,
            self.failed | other.failed,
            self.skipped | other.skipped,
            self.seconds + other.seconds,
            self.is_complete and other.is_complete,
        )


def read(log: Path, code: int) -> Outcomes:
    """What pytest wrote to its report log, before it ended with this code."""
    outcomes = Outcomes(is_complete=code in ENDED)
    for line in log.read_bytes().splitlines() if log.exists() else ():
        report = orjson.loads(line)
        match report.get("$report_type"):
            case "TestReport":
                _take(outcomes, report)
            case "CollectReport" if report["outcome"] == "failed":
                outcomes.failed[report["nodeid"]] = Failure(_text(report["longrepr"]))
                outcomes.is_complete = False
    outcomes.passed -= outcomes.failed.keys()
    return outcomes


def summary(first: Outcomes, second: Outcomes, *, is_ci: bool) -> tuple[str, bool]:
    """The last lines of a run, and whether it is red; `second` is of what failed in the first."""
    unsteady = sorted(first.failed.keys() & second.passed)
    failed = {name: why for name, why in first.failed.items() if name not in second.passed}
    reasons = Counter(first.skipped.values())
    unwanted = sorted(filter(_is_unwanted, reasons)) if is_ci else []
    lines = [f"slowest {SLOWEST}:"]
    lines += [f"{spent:7.1f} s  {name}" for name, spent in first.seconds.most_common(SLOWEST)]
    lines += ["", "skipped, by reason:"]
    lines += [f"{count:5}  {reason}" for reason, count in reasons.most_common()]
    lines += [f"not to be skipped in CI: {reason}" for reason in unwanted]
    each = LINES // max(len(failed), 1)
    for name, why in failed.items():
        lines += ["", f"FAILED {name}", *why.lines(max(each - 2, 1))]
    lines += ["", *(f"unsteady: {name}" for name in unsteady), f"{len(unsteady)} unsteady"]
    if not first.is_complete:
        lines.append("the run is incomplete: see above")
    passed = len(first.passed | second.passed)
    lines.append(f"{passed} passed, {len(failed)} failed, {len(first.skipped)} skipped")
    return "\n".join(["", *lines]), bool(failed or unwanted) or not first.is_complete


def _is_unwanted(reason: str) -> bool:
    return not reason.startswith(WITH_LONG)


def _take(outcomes: Outcomes, report: Json) -> None:
    name, outcome = report["nodeid"], report["outcome"]
    outcomes.seconds[name] += report["duration"]
    if outcome == "failed":
        outcomes.failed.setdefault(name, Failure(_text(report["longrepr"]), tuple(_logs(report))))
    elif outcome == "skipped":
        outcomes.skipped[name] = report["longrepr"][2].removeprefix("Skipped: ")
    elif report["when"] == "call":
        outcomes.passed.add(name)


def _logs(report: Json) -> Iterable[tuple[str, str]]:
    return ((name, text) for name, text in report["sections"] if name.startswith(LOG_SECTION))


def _text(longrepr: Any) -> str:
    """What pytest prints of a failure, which a report has in one of three forms."""
    if isinstance(longrepr, dict) and "reprtraceback" in longrepr:
        entries = longrepr["reprtraceback"]["reprentries"]
        return "\n".join(line for entry in entries for line in entry["data"].get("lines", ()))
    return str(longrepr.get("longrepr", longrepr) if isinstance(longrepr, dict) else longrepr)
