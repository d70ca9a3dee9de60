"""The help of every command, the manual page, and what shells complete."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ccm.cli.main import SECTIONS, main
from ccm.cli.manual import EXIT_CODES, page, roff
from tests.docs.calls import all_commands, wrong_calls
from tests.docs.pages import ROOT, Page, table_rows

ROOT_CONTEXT = click.Context(main, info_name="ccm-supervisor", **main.context_settings)
EVERY = [ROOT_CONTEXT, *all_commands(main, ROOT_CONTEXT)]
every_command = pytest.mark.parametrize("ctx", EVERY, ids=[ctx.command_path for ctx in EVERY])


@every_command
def test_every_help_has_an_example_that_can_be_given_as_it_stands(
    ctx: click.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    epilog = ctx.command.epilog or ""
    example = Page(Path(), epilog, "")
    assert [name for name, _ in example.commands], ctx.command_path
    assert ctx.command_path in epilog
    assert wrong_calls(example, monkeypatch) == []


@every_command
@pytest.mark.parametrize("word", ["-h", "--help"])
def test_every_help_is_whole(ctx: click.Context, word: str) -> None:
    words = [*ctx.command_path.split()[1:], word]
    done = CliRunner().invoke(main, words, prog_name="ccm-supervisor", terminal_width=80)
    assert done.exit_code == 0, done.output
    assert f"Usage: {ctx.command_path} " in done.output
    assert "..." not in done.output.replace("]...", "")
    assert max(map(len, done.output.splitlines())) <= 100


def test_the_help_has_its_groups_in_the_order_of_work() -> None:
    text = CliRunner().invoke(main, ["-h"], catch_exceptions=False).output
    places = [text.index(f"\n{title}:\n  ") for title in SECTIONS]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["statsu"], "'status'"),
        (["deletions", "alow"], "'allow'"),
        (["status", "--wach"], "--watch"),
    ],
)
def test_a_mistyped_word_is_answered_with_what_was_meant(words: list[str], meant: str) -> None:
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert "Did you mean" in done.stderr
    assert meant in done.stderr


def test_the_manual_page_is_the_one_in_the_code() -> None:
    shipped = (ROOT / "systemd" / "ccm-supervisor.1").read_text()
    assert shipped == "\n".join([*page(), ""]), "run `make docs`"
    assert roff(".\\-x") == "\\&.\\e\\-x"


def test_the_page_has_the_exit_codes_of_the_code() -> None:
    assert table_rows("output.md", "exit codes")[1:] == [
        [str(code.value), meaning] for code, meaning in EXIT_CODES.items()
    ]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_is_given_a_script_that_asks_us(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0, done.output
    assert f"_CCM_SUPERVISOR_COMPLETE={shell}_complete" in done.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("ccm-supervisor sta", {"start", "status"}),
        ("ccm-supervisor deletions fr", {"freeze"}),
        ("ccm-supervisor start --cloud-conf", {"--cloud-config"}),
        ("ccm-supervisor status -o y", {"yaml"}),
        ("ccm-supervisor plan --cloud-conf", {"--cloud-config"}),
        ("ccm-supervisor plan --time", {"--timeout"}),
        ("ccm-supervisor orphans list --cloud-conf", {"--cloud-config"}),
        ("ccm-supervisor manifests -- --cloud-conf", {"--cloud-config"}),
        ("ccm-supervisor explain s", {"service"}),
        ("ccm-supervisor restart --runtime-dir=/nowhere n", set()),
    ],
)
def test_words_are_completed(shell: str, line: str, completed: set[str]) -> None:
    last = line.rpartition(" ")[2]
    place = last if shell == "fish" else str(line.count(" "))
    asked = {"_CCM_SUPERVISOR_COMPLETE": f"{shell}_complete", "COMP_WORDS": line}
    done = CliRunner().invoke(
        main, prog_name="ccm-supervisor", env={**asked, "COMP_CWORD": place}, catch_exceptions=False
    )
    words = done.output.replace("plain,", "").replace("\t", "\n").splitlines()
    assert completed <= set(words)
    assert {word for word in words if word.startswith(last)} == completed


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    script = CliRunner().invoke(main, ["completion", "bash"]).output
    (tmp_path / "script").write_text(script)
    asks = (
        "COMP_WORDS=(ccm-supervisor expl); COMP_CWORD=1; _ccm_supervisor_completion ccm-supervisor"
    )
    shown = f'source {tmp_path}/script; {asks}; echo "${{COMPREPLY[@]}}"'
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(["bash", "-c", shown], capture_output=True, text=True, env=environment)
    assert done.stdout == "explain\n", done.stderr
