"""`ccm-supervisor start` and `cloud-controller-manager` before anything is started."""

import sys

import pytest

from ccm import __version__
from ccm.cli.main import drop_in, main
from ccm.errors import ExitCode
from ccm.settings import flags

COMMANDS = ["start", "drop-in"]


@pytest.fixture(params=COMMANDS)
def command(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the two commands; `run` takes it."""
    for flag in flags():
        monkeypatch.delenv(flag.variable, raising=False)
    return str(request.param)


def run(command: str, *words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code."""
    program = ["ccm-supervisor", "start"] if command == "start" else ["cloud-controller-manager"]
    monkeypatch.setattr(sys, "argv", [*program, *words])
    with pytest.raises(SystemExit) as end:
        (main if command == "start" else drop_in)()
    return int(end.value.code or 0)


def test_help_has_every_flag_under_its_heading(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, "--zzz", "--help", monkeypatch=monkeypatch) == 0
    text = capsys.readouterr().out
    places = [text.index(f"\n{group}:\n") for group in dict.fromkeys(f.group for f in flags())]
    assert places == sorted(places)
    for flag in flags():
        assert f"--{flag.name}" in text
    assert "--leader-elect[=BOOL]" in text
    assert "-v, --v N" in text
    assert "no effect; default: 12h" in " ".join(text.split())


@pytest.mark.parametrize("word", ["--version", "--version=true", "--version=raw"])
def test_the_version_is_shown(
    command: str, word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, word, monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.startswith(f"ccm-supervisor {__version__}")


def test_all_faults_are_a_line_each_and_not_worth_another_try(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CCM_NODE_WORKERS", "0")
    code = run(command, "--zzz=1", "stray", "--leader-elect=maybe", monkeypatch=monkeypatch)
    assert code == ExitCode.CONFIGURATION
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "--zzz",
        "'stray'",
        "--leader-elect",
        "--node-workers (from CCM_NODE_WORKERS)",
        "--cloud-provider",
    ]


def test_a_wish_for_the_version_does_not_hide_a_fault(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, "--version", "--zzz", monkeypatch=monkeypatch) == ExitCode.CONFIGURATION
    assert capsys.readouterr().out == ""
