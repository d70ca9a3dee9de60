"""A run of the tests says what failed twice, what is unsteady and what was skipped, and why."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import deadlines
from tests.support.outcomes import LOG_SECTION, Failure, Outcomes, read, summary
from tests.support.running import WITH_LONG

TESTS = """
import pathlib
import pytest

HERE = pathlib.Path(__file__).parent

def test_passes(): pass

def test_passes_the_second_time():
    flag = HERE / "ran"
    was_there = flag.exists()
    flag.touch()
    assert was_there, "the first time"

def test_fails(): assert 1 == 2, "each time"

def test_breaks_in_its_fixture(missing_fixture): pass

@pytest.mark.parametrize("value", ["a b", "[c]::d"])
def test_odd_ids(value): assert not value

@pytest.mark.skip(reason="takes minutes: set CCM_LONG=1")
def test_long(): pass

@pytest.mark.skip(reason="lazy")
def test_lazy(): pass
"""
LOG = "\n".join([*map(str, range(100)), "the end of its log"])
FAILURE = Failure("def test():\nE   assert 1 == 2", ((f"{LOG_SECTION}supervisor", LOG),))
FAILED = {
    "test_it.py::test_fails",
    "test_it.py::test_breaks_in_its_fixture",
    "test_it.py::test_odd_ids[a b]",
    "test_it.py::test_odd_ids[[c]::d]",
}


def run(folder: Path, *words: str) -> Outcomes:
    log = folder / "log.jsonl"
    log.unlink(missing_ok=True)
    plugins = ("-p", "no:cacheprovider", "-p", "pytest_reportlog.plugin")
    done = subprocess.run(
        (sys.executable, "-m", "pytest", "-q", *plugins, f"--report-log={log}", *words),
        cwd=folder,
        env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        timeout=deadlines.timeout(),
        check=False,
    )
    return read(log, done.returncode)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcomes, Outcomes]:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "test_it.py").write_text(TESTS)
    first = run(folder)
    (folder / "chosen").write_text("\n".join(first.failed))
    return first, run(folder, "@chosen")


def test_only_what_failed_is_run_again(runs: tuple[Outcomes, Outcomes]) -> None:
    first, second = runs
    unsteady = "test_it.py::test_passes_the_second_time"
    assert first.failed.keys() == FAILED | {unsteady}
    assert first.passed == {"test_it.py::test_passes"}
    assert (set(second.failed), second.passed) == (FAILED, {unsteady})


def test_what_fails_twice_is_red_and_shown_with_its_assertion(
    runs: tuple[Outcomes, Outcomes],
) -> None:
    text, is_red = summary(*runs, is_ci=False)
    assert is_red
    assert "AssertionError: each time" in text
    assert "AssertionError: the first time" not in text
    assert "fixture 'missing_fixture' not found" in text
    assert "unsteady: test_it.py::test_passes_the_second_time\n1 unsteady\n" in text
    assert text.endswith("\n2 passed, 4 failed, 2 skipped")


def test_a_test_that_passes_alone_does_not_fail_the_run() -> None:
    first, second = Outcomes(failed={"a": FAILURE}), Outcomes(passed={"a"})
    text, is_red = summary(first, second, is_ci=True)
    assert text.endswith("unsteady: a\n1 unsteady\n1 passed, 0 failed, 0 skipped")
    assert not is_red


def test_in_ci_only_what_takes_minutes_may_be_skipped() -> None:
    skipped = Outcomes(skipped={"a": f"{WITH_LONG}, or start the lab", "b": WITH_LONG})
    assert not summary(skipped, Outcomes(), is_ci=True)[1]
    skipped.skipped["c"] = "lazy"
    text, is_red = summary(skipped, Outcomes(), is_ci=True)
    assert is_red
    assert "not to be skipped in CI: lazy" in text
    assert not summary(skipped, Outcomes(), is_ci=False)[1]


def test_a_run_that_was_broken_off_is_red(tmp_path: Path) -> None:
    assert summary(read(tmp_path / "none", 3), Outcomes(), is_ci=False)[1]


def test_a_file_that_cannot_be_read_is_red(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import nonesuch")
    outcomes = run(tmp_path)
    assert not outcomes.is_complete
    assert "No module named 'nonesuch'" in summary(outcomes, Outcomes(), is_ci=False)[0]


def test_all_failures_fit_into_the_last_lines() -> None:
    failed = {f"test_{number}": FAILURE for number in range(8)}
    text, _ = summary(Outcomes(failed=failed), Outcomes(failed=failed), is_ci=True)
    last = text.splitlines()[-80:]
    assert [line for line in last if line.startswith("FAILED")] == [f"FAILED {n}" for n in failed]
    assert last.count("E   assert 1 == 2") == last.count("the end of its log") == 8
