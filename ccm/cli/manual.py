"""`python -m ccm.cli.manual`: the page of `man ccm-supervisor`, from the help of the commands."""

from collections.abc import Iterator

import click

from ccm import __version__
from ccm.cli.main import SECTIONS, main
from ccm.cli.reporting import say
from ccm.cli.start import FlagOption
from ccm.errors import ExitCode

HEAD = f"""\
.TH CCM-SUPERVISOR 1 "" "ccm-supervisor {__version__}" "User Commands"
.SH NAME
ccm-supervisor, cloud-controller-manager \\- Kubernetes cloud controller manager
.SH SYNOPSIS
.B ccm-supervisor
.I COMMAND
.br
.B cloud-controller-manager
.I FLAGS OF start"""

EXIT_CODES = {
    ExitCode.OK: "It is done, and nothing is wrong.",
    ExitCode.FAILED: "It could not be done, or something does not work; trying again may help.",
    ExitCode.USAGE: "The command line is wrong, or the supervisor refuses the request.",
    ExitCode.CONFIGURATION: "Flags or configuration are invalid: a retry does not help.",
}
"""Those of commands; a worker has more."""

ENVIRONMENT = "A flag of start by its name in capitals, as CCM_NODE_WORKERS=2 for --node-workers=2."


def page() -> Iterator[str]:
    """The page, line by line."""
    yield from (HEAD, ".SH DESCRIPTION", roff(main.help or ""))
    root = click.Context(main, info_name="ccm-supervisor", **main.context_settings)
    for title, names in SECTIONS.items():
        yield f".SH {title.upper()}"
        for name in names:
            yield from _below(root, main, name)
    yield ".SH EXIT STATUS"
    for code, meaning in EXIT_CODES.items():
        yield from (".TP", str(code.value), roff(meaning))
    yield from (".SH ENVIRONMENT", ".TP", ".I CCM_NAME", roff(ENVIRONMENT))


def _below(above: click.Context, group: click.Group, name: str) -> Iterator[str]:
    """One command of a group, with its options, and all commands below it."""
    command = group.get_command(above, name)
    assert command is not None
    ctx = click.Context(command, above, info_name=name)
    words = [ctx.command_path, *command.collect_usage_pieces(ctx)]
    yield from (f".SS {roff(' '.join(words))}", *map(roff, (command.help or "").splitlines()))
    for option in command.params:
        record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
        if record and (name == "start" or not isinstance(option, FlagOption)):
            yield from (".TP", f"\\fB{roff(record[0])}\\fR", roff(record[1]))
    yield from (".PP", ".nf", *map(roff, (command.epilog or "").splitlines()[1:]), ".fi")
    if isinstance(command, click.Group):
        for below in command.list_commands(ctx):
            yield from _below(ctx, command, below)


def roff(text: str) -> str:
    """Text as roff takes it: nothing in it is a request or an escape."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


if __name__ == "__main__":
    say(*"\n".join(page()).splitlines())
