"""Runs the tests of rows in a copy of the tree: all with their cures, then each without its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from tests.support.deadlines import timeout
from tests.support.running import IS_LONG, WITH_LONG

from .cures import ROOT, Cure, cures_of
from .rows import FaultRow

MOST = 3600.0  # seconds at rest in which no run is still under way
PATIENCE = {"TEST_PATIENCE": "15"}  # a test that bites mostly waits for what does not come
CRASHED = "pytest itself failed"
ACCIDENTS = (CRASHED, "SyntaxError", "ImportError", "NameError", "UnboundLocalError")
"""What a test fails with when a cure was taken away clumsily."""
NOT_COPIED = (".git", ".venv*", ".*_cache", ".hypothesis", ".mutants", "dist", "build")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a test: why it failed, why it was skipped, or neither."""

    failure: str = ""
    skipped: str = ""


@dataclass
class Tree:
    """A copy of the tree, so that the one that people work in stays as it is."""

    root: Path
    with_cures: dict[str, Outcome] = field(default_factory=dict)  # by test

    @classmethod
    def copy(cls, root: Path, rows: Collection[FaultRow]) -> "Tree":
        """A new one at `root`, in which the tests of these rows were run with all cures."""
        shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(*NOT_COPIED))
        tree = cls(root)
        tests = sorted({row.test for row in rows})
        tree.with_cures = tree._run(tests)
        if late := [test for test in tests if WITH_LONG in tree.with_cures[test].skipped]:
            tree.with_cures |= tree._run(late, is_long=True) if IS_LONG else {}
        return tree

    def verdict(self, row: FaultRow) -> tuple[str, str]:
        """One of `bites`, `does not bite`, `fails anyway` and `not run`, and why."""
        before = self.with_cures[row.test]
        if before.skipped:
            return "not run", before.skipped
        if before.failure:
            return "fails anyway", before.failure
        with self._without(cures_of(row)):
            after = self._run([row.test])[row.test]
            if WITH_LONG in after.skipped:
                after = self._run([row.test], is_long=True)[row.test]
        if not after.failure or after.failure.startswith(ACCIDENTS):
            return "does not bite", after.failure
        return "bites", after.failure

    @contextmanager
    def _without(self, cures: list[Cure]) -> Iterator[None]:
        before = {cure.file: (self.root / cure.file).read_text() for cure in cures}
        try:
            for cure in cures:
                path = self.root / cure.file
                path.write_text(cure.taken_from(path.read_text()))
            yield
        finally:
            for file, source in before.items():
                (self.root / file).write_text(source)

    def _run(self, tests: list[str], is_long: bool = False) -> dict[str, Outcome]:
        """In one process of pytest, at the sizes of a desk unless `is_long`."""
        report = self.root / "report.xml"
        report.unlink(missing_ok=True)
        if not tests:  # without a name, pytest would run them all
            return {}
        options = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        # Each process that a test starts would compile all code of its own.
        unset = ("CCM_LONG", "PYTHONDONTWRITEBYTECODE")
        environment = {name: os.environ[name] for name in os.environ if name not in unset}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *(f"tests/{test}" for test in tests)],
            cwd=self.root,
            env=environment
            | {"PYTHONPATH": str(self.root), **PATIENCE}
            | ({"CCM_LONG": "1"} if is_long else {}),
            capture_output=True,
            text=True,
            timeout=timeout(MOST),
        )
        if done.returncode not in (0, 1) or not report.exists():
            crash = Outcome(f"{CRASHED}: {done.stdout[-4000:]}{done.stderr[-4000:]}")
            return dict.fromkeys(tests, crash)
        cases = list(ElementTree.parse(report).iter("testcase"))
        return {test: _outcome([case for case in cases if _is_of(case, test)]) for test in tests}


def _is_of(case: ElementTree.Element, test: str) -> bool:
    """Whether a case of the report is this test, or one of its parameters."""
    file, _, name = test.partition("::")
    module, found = file.removesuffix(".py").replace("/", "."), case.get("name", "")
    return case.get("classname") == f"tests.{module}" and name in (found, found.partition("[")[0])


def _outcome(cases: list[ElementTree.Element]) -> Outcome:
    """Of a test with several parameters, those that were skipped do not count beside others."""

    def reported(*kinds: str) -> str:
        found = [it for case in cases for kind in kinds for it in case.findall(kind)]
        return " | ".join(it.get("message", "") for it in found)

    has_run = any(case.find("skipped") is None for case in cases)
    failure = reported("failure", "error") if cases else f"{CRASHED}: it ran no such test"
    return Outcome(failure, "" if failure or has_run else reported("skipped"))
