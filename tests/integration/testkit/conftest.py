"""A new provider in a folder of its own, and the kit run on it in this process, which is fast."""

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ccm.cli.providers import rendered, write
from ccm.cloud import registry

from .kit_run import Run

NAME = "mutant"
MODULE = f"ccm_provider_{NAME}"
NOT_WANTED = ("xdist", "timeout", "cacheprovider", "unraisableexception", "threadexception")
"""Plugins of pytest that the run around this one has as well, or that take most of its time."""


@dataclass(eq=False)
class Outcome(Run):
    """With the tests of the kit that failed in their own body."""

    failed: set[str] = field(default_factory=set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.when == "call":
            self.failed.add(report.nodeid.rpartition("::")[2].partition("[")[0])


RunKit = Callable[..., Outcome]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Its Python files; it is registered and the working directory is its project's."""
    write(tmp_path, dict(rendered(NAME)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_in_code", {NAME: make_provider})
    yield tmp_path / MODULE
    for name in [name for name in sys.modules if name.partition(".")[0] == MODULE]:
        del sys.modules[name]


def make_provider() -> object:
    return importlib.import_module(f"{MODULE}.provider").MutantProvider()


@pytest.fixture
def run_kit(capfd: pytest.CaptureFixture[str]) -> RunKit:
    """Run pytest with these arguments; a test of the kit is named `instances::test_…`."""

    def run(*arguments: str) -> Outcome:
        outcome = Outcome()
        named = [one if one[0] in "-." else f"ccm.cloud.testkit.test_{one}" for one in arguments]
        quiet = [f"-pno:{plugin}" for plugin in NOT_WANTED]
        outcome.code = pytest.main(["-q", *quiet, *named], plugins=[outcome])
        printed = capfd.readouterr()
        outcome.output = printed.out + printed.err
        return outcome

    return run
