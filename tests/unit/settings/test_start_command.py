"""`ccm-supervisor start` and `cloud-controller-manager` before anything is started."""

import sys
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from ccm import __version__
from ccm.cli.main import drop_in, main
from ccm.errors import ExitCode
from ccm.settings import flags

Run = Callable[..., int]


@pytest.fixture(params=["start", "drop-in"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Each of the two commands, as a function from words to the exit code."""
    for flag in flags():
        monkeypatch.delenv(flag.variable, raising=False)
    is_start = request.param == "start"
    program = ["ccm-supervisor", "start"] if is_start else ["cloud-controller-manager"]

    def run(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", [*program, *words])
        with pytest.raises(SystemExit) as end:
            (main if is_start else drop_in)()
        return int(end.value.code or 0)

    return run


def test_help_has_every_flag_under_its_heading(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--zzz", "--help") == 0
    text = capsys.readouterr().out
    places = [text.index(f"\n{group}:\n") for group in dict.fromkeys(f.group for f in flags())]
    assert places == sorted(places)
    assert all(f"--{flag.name}" in text for flag in flags())
    assert "--leader-elect[=BOOL]" in text
    assert "-v, --v N" in text
    assert "no effect; default: 12h" in " ".join(text.split())


@pytest.mark.parametrize("word", ["--version", "--version=true", "--version=raw"])
def test_the_version_is_shown(run: Run, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(word) == 0
    assert capsys.readouterr().out.startswith(f"ccm-supervisor {__version__}")


def test_the_path_of_upstreams_command_may_come_first_among_the_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = "/bin/openstack-cloud-controller-manager"
    monkeypatch.setattr(sys, "argv", ["cloud-controller-manager", path, "--version"])
    with pytest.raises(SystemExit) as end:
        drop_in()
    assert not end.value.code
    assert capsys.readouterr().out.startswith(f"ccm-supervisor {__version__}")


def test_all_faults_are_a_line_each_and_not_worth_another_try(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CCM_NODE_WORKERS", "0")
    assert run("--zzz=1", "stray", "--leader-elect=maybe") == ExitCode.CONFIGURATION
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[:2] for line in lines] == [
        ["ccm-supervisor", "--zzz"],
        ["ccm-supervisor", "'stray'"],
        ["ccm-supervisor", "--leader-elect"],
        ["ccm-supervisor", "--node-workers (from CCM_NODE_WORKERS)"],
        ["ccm-supervisor", "--cloud-provider"],
    ]


def test_a_request_for_the_version_does_not_hide_a_fault(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--version", "--zzz") == ExitCode.CONFIGURATION
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("words", [["check"], ["plan"], ["orphans", "list"], ["manifests", "--"]])
def test_every_command_that_takes_the_flags_of_start_reports_all_faults(words: list[str]) -> None:
    result = CliRunner().invoke(main, [*words, "--zzz=1", "--node-workers=a|b"])
    assert result.exit_code == ExitCode.CONFIGURATION
    assert [line.split(": ")[:2] for line in result.output.splitlines()] == [
        ["ccm-supervisor", flag] for flag in ("--zzz", "--node-workers", "--cloud-provider")
    ]
