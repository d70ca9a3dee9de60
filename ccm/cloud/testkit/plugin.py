"""The kit's part of pytest: its options, and the report at the end.

It is loaded in every run of pytest, so it imports nothing of ours before `--provider` is given.
"""

from collections import Counter
from collections.abc import Generator, Iterator

import pytest

KIT = "ccm.cloud.testkit.test_"
AREA = "kit area"
OUTCOMES = {"passed": ("passed",), "skipped": ("skipped",), "failed": ("failed", "error")}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--provider` and `--adapter`."""
    group = parser.getgroup("ccm.cloud.testkit", "conformance of a cloud provider")
    group.addoption("--provider", metavar="NAME", help="The provider under test.")
    group.addoption(
        "--adapter",
        metavar="MODULE:NAME",
        help="What makes its ccm.cloud.testkit.adapter.Adapter: a class, or a function.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Report only when a provider is tested."""
    name = config.getoption("--provider")
    if name:
        config.pluginmanager.register(Report(name), "ccm.cloud.testkit.report")


class Report:
    """By area how many tests passed; by name and with the reason which were skipped."""

    def __init__(self, provider: str) -> None:
        from ccm.cloud.testkit.adapter import Untestable
        from ccm.errors import ImplementedElsewhere, NotImplementedByProvider

        self._provider = provider
        # There is nothing to test here, rather than something wrong.
        self._reasons = (Untestable, ImplementedElsewhere, NotImplementedByProvider)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Turn what says that there is nothing to test into a skip."""
        module = getattr(item, "module", None)
        if module is None or not module.__name__.startswith(KIT):
            return (yield)
        why = call.excinfo and call.excinfo.errisinstance(self._reasons) and call.excinfo.value
        if why:
            call.excinfo = _skip(str(why))  # a traceback would take a fifth of a second
        report = yield
        report.user_properties.append((AREA, module.__name__.removeprefix(KIT).replace("_", " ")))
        if why:
            path, line, _ = item.location
            report.longrepr = (path, line or 0, str(why))
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table, and below it what was skipped."""
        stats = terminalreporter.stats
        reports = {
            outcome: [report for name in names for report in stats.get(name, []) if _area(report)]
            for outcome, names in OUTCOMES.items()
        }
        terminalreporter.section(f"conformance of provider {self._provider}")
        for line in (*_table(reports), *_skipped(reports["skipped"])):
            terminalreporter.line(line)


def _area(report: object) -> str:
    """The area of a test of the kit; empty for every other test."""
    return str(dict(getattr(report, "user_properties", ())).get(AREA, ""))


def _table(reports: dict[str, list[pytest.TestReport]]) -> Iterator[str]:
    counts = {outcome: Counter(map(_area, found)) for outcome, found in reports.items()}
    areas = sorted(set().union(*counts.values()))
    width = max(map(len, [*areas, "all"]))
    yield f"{'area':{width}}" + "".join(f"{outcome:>12}" for outcome in OUTCOMES)
    for area in areas:
        yield f"{area:{width}}" + "".join(f"{counts[outcome][area]:>12}" for outcome in OUTCOMES)
    yield f"{'all':{width}}" + "".join(f"{counts[outcome].total():>12}" for outcome in OUTCOMES)


def _skip(why: str) -> pytest.ExceptionInfo[BaseException]:
    try:
        raise pytest.skip.Exception(why)
    except pytest.skip.Exception:
        return pytest.ExceptionInfo.from_current()


def _skipped(reports: list[pytest.TestReport]) -> Iterator[str]:
    """Each test that was skipped, and why."""
    if reports:
        yield "skipped:"
    for report in reports:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        test = report.nodeid.rpartition("::")[2].removeprefix("test_").replace("_", " ")
        yield f"  {_area(report)}: {test}: {reason}"
