"""`make edge-cases`: runs every test that carries a row, and prints what became of each row."""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby

import pytest

from tests.support.rows import TESTS, differences, ids_in, upstream_rows

from .verdict import judge


class Carriers:
    """A pytest plugin: of all tests, only those that carry a row, and how each of them ended."""

    def __init__(self) -> None:
        self.results: defaultdict[str, dict[str, str]] = defaultdict(dict)  # row → test → outcome

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if _rows_of(item.nodeid)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        for key in _rows_of(report.nodeid):
            before = self.results[key].get(report.nodeid)
            self.results[key][report.nodeid] = "failed" if before == "failed" else report.outcome


def _rows_of(test: str) -> set[str]:
    return ids_in(test.partition("[")[2])


def _by_test(cases: Iterable[str]) -> Iterator[str]:
    """Node ids, with all cases of a test together."""
    for name, same in groupby(sorted(cases), lambda case: case.partition("[")[0]):
        yield f"{name}[{', '.join(case.partition('[')[2][:-1] for case in same)}]"


def main() -> int:
    """0 when each row has passed or is a difference, and nothing else went wrong."""
    carriers = Carriers()
    options = ["-q", "--no-header", "--tb=short", "-r", "f", "--continue-on-collection-errors"]
    exit_code = pytest.main([*options, str(TESTS)], plugins=[carriers])
    rows, known = upstream_rows(), differences()
    bad = 0
    for key, row in rows.items():
        results, link = carriers.results[key], known.get(key, "")
        verdict = judge(row, results, link)
        bad += not verdict.is_good
        print(f"{key:5} {verdict.result:16} {row.says}")
        for line in (*_by_test(results), *([link] if link else [])):
            print(f"{'':22} {line}")
    strangers = sorted(carriers.results.keys() - rows.keys())
    print(f"\n{len(rows)} rows, {bad} not as they should be; unknown ids: {strangers or 'none'}")
    return int(bool(exit_code or bad or strangers))


if __name__ == "__main__":
    sys.exit(main())
