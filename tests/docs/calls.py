"""Calls of our programs as someone would type them: parsed, and not carried out."""

from collections.abc import Iterator

import click
import pytest

from ccm.cli.main import main
from ccm.cli.start import start
from ccm.settings import read_arguments
from tests.docs.pages import PROGRAMS, Page

COMMANDS = dict(zip(PROGRAMS, (main, start), strict=True))
FLAGS_OF_START = ("words", "flags", "start_flags")
"""Under which names commands take the flags of `start`; they are read by `ccm.settings`."""


def wrong_calls(page: Page, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is wrong with the calls in a page, one line each."""
    read: list[click.Context] = []
    monkeypatch.setattr(click.Command, "invoke", lambda _, ctx: read.append(ctx))
    wrong = []
    for program, arguments in page.commands:
        read.clear()
        try:
            COMMANDS[program].main(arguments, program, standalone_mode=False)
            wrong += [str(fault) for ctx in read for fault in _faults_of_flags(ctx)]
        except click.ClickException as fault:
            wrong.append(f"{' '.join([program, *arguments])}: {fault.format_message()}")
    return wrong


def _faults_of_flags(ctx: click.Context) -> Iterator[Exception]:
    """Faults in the flags of `start` that a command was given, but for words like FLAGS."""
    for name in FLAGS_OF_START:
        words = [word for word in ctx.params.get(name) or () if not word.isupper()]
        if words[:1] == ["-o"]:  # of 'check', which reads its own option so
            del words[:2]
        yield from read_arguments(words).faults


def all_commands(group: click.Group, ctx: click.Context) -> Iterator[click.Context]:
    """The context of every command below this group, groups too."""
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        below = click.Context(command, ctx, info_name=name)
        yield below
        if isinstance(command, click.Group):
            yield from all_commands(command, below)
