"""What the kit says at the end: by area how much was shown, and by name what was not."""

from collections import Counter
from collections.abc import Generator, Iterator

import pytest

from ccm.cloud.testkit.adapter import NotShown
from ccm.errors import ImplementedElsewhere, NotImplementedByProvider

KIT = "ccm.cloud.testkit.test_"
AREA = "kit area"
NOT_SHOWN = "not shown"
OUTCOMES = {"shown": ("passed",), NOT_SHOWN: (NOT_SHOWN,), "failed": ("failed", "error")}

ABSENT = (NotShown, ImplementedElsewhere, NotImplementedByProvider)
"""What says that there is nothing to show here, rather than that it is wrong."""


class Report:
    """Turns `NotShown` into an outcome of its own; the outcomes become the table."""

    def __init__(self, provider: str) -> None:
        self._provider = provider

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        module = getattr(item, "module", None)
        if module is None or not module.__name__.startswith(KIT):
            return report
        report.user_properties.append((AREA, module.__name__.removeprefix(KIT).replace("_", " ")))
        if call.excinfo and call.excinfo.errisinstance(ABSENT):
            path, line, _ = item.location
            report.outcome = "skipped"
            report.longrepr = (path, line or 0, str(call.excinfo.value))
        return report

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        if report.skipped and _area(report):
            return NOT_SHOWN, "n", "NOT SHOWN"
        return None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        stats = terminalreporter.stats
        found = {
            outcome: [report for name in names for report in stats.get(name, []) if _area(report)]
            for outcome, names in OUTCOMES.items()
        }
        terminalreporter.section(f"provider {self._provider}: what the kit has shown")
        for line in (*_table(found), *_named(found[NOT_SHOWN])):
            terminalreporter.line(line)


def _area(report: object) -> str:
    """The area of a test of the kit; empty for every other test."""
    return str(dict(getattr(report, "user_properties", ())).get(AREA, ""))


def _table(found: dict[str, list[pytest.TestReport]]) -> Iterator[str]:
    counts = {outcome: Counter(map(_area, reports)) for outcome, reports in found.items()}
    areas = sorted(set().union(*counts.values()))
    width = max(map(len, [*areas, "all"]))
    yield f"{'area':{width}}" + "".join(f"{outcome:>12}" for outcome in OUTCOMES)
    for area in areas:
        yield f"{area:{width}}" + "".join(f"{counts[outcome][area]:>12}" for outcome in OUTCOMES)
    yield f"{'all':{width}}" + "".join(f"{counts[outcome].total():>12}" for outcome in OUTCOMES)


def _named(reports: list[pytest.TestReport]) -> Iterator[str]:
    """Each thing that was not shown, and why."""
    if reports:
        yield f"{NOT_SHOWN}:"
    for report in reports:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        yield f"  {_area(report)}: {report.nodeid.rpartition('::')[2]}: {reason}"
