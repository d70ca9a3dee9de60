"""What commands print, all of it through here, and how one ends that cannot do its work."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
import orjson

from ccm.errors import (
    CannotListen,
    CloudError,
    ConfigurationFault,
    ConfigurationFaults,
    ExitCode,
    KubernetesError,
    Unreachable,
)
from ccm.printable import printable, printable_json
from ccm.redaction import without_secrets

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from ccm.cli.fitting import Fitted


FORMATS = ("json", "yaml")
"""What `-o` has for programs."""

UNFITTED_WIDTH = 10_000  # characters

F = TypeVar("F", bound=Callable[..., Any])


class Heading(str):
    """A line that is shown bold."""


class Group(click.Group):
    """A group of commands, whose help has the first sentence of each of them whole."""

    group_class = type  # and so are the groups below it

    def sections(self, ctx: click.Context) -> Mapping[str, Iterable[str]]:
        """The names of commands by heading."""
        return {"Commands": self.list_commands(ctx)}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in self.sections(ctx).items():
            found = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    [(name, each.get_short_help_str(limit=1000)) for name, each in found if each]
                )


def say(*lines: object, err: bool = False) -> None:
    """Print each on a line of its own, whatever is in it."""
    for line in lines:
        text = printable(without_secrets(str(line)))
        click.echo(click.style(text, bold=True) if isinstance(line, Heading) else text, err=err)


def output_option(readable: str) -> Callable[[F], F]:
    """The option `-o`: `readable` is for people, the others are for programs."""
    return click.option(
        *("-o", "--output", "output"),
        type=click.Choice([readable, *FORMATS]),
        default=readable,
        show_default=True,
        help="How to show it.",
    )


def say_json(value: Any, option: int = orjson.OPT_INDENT_2) -> None:
    """Print the value as JSON."""
    click.echo(without_secrets(printable_json(value, option)))


def say_document(
    schema: str, value: Mapping[str, Any], output: str, *, on_one_line: bool = False
) -> None:
    """Print a value for programs, with the name and version of its schema (docs/output.md)."""
    document = {"schema": schema, **value}
    if output == "json":
        say_json(document, 0 if on_one_line else orjson.OPT_INDENT_2)
        return
    import yaml

    plain = orjson.loads(orjson.dumps(document))
    click.echo(
        without_secrets(yaml.safe_dump(plain, explicit_start=True, sort_keys=False)), nl=False
    )


def inherited(name: str, default: Callable[[], str]) -> Callable[[], str]:
    """For an option that a group has as well: what the group was given, or the default."""

    def value() -> str:
        above = click.get_current_context().parent
        while above and name not in above.params:
            above = above.parent
        return str(above.params[name]) if above else default()

    return value


def example(*lines: str) -> str:
    """The end of a command's help: calls of it that can be typed as they stand."""
    return "\n".join(("\b", "Example:", *(f"  {line}" for line in lines)))


def show(*parts: object) -> None:
    """Print tables and texts; into a pipe or a file, a row is a line, however long."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        terminal().print(*parts, sep="\n")
        return
    console = terminal(UNFITTED_WIDTH)
    with console.capture() as text:
        console.print(*parts, sep="\n")
    click.echo("\n".join(line.rstrip() for line in text.get().splitlines()))


def terminal(width: int | None = None) -> "Console":
    """A text in a table is no markup. Control characters are for who makes the table."""
    from rich.console import Console

    return Console(markup=False, emoji=False, width=width)


def live_view(first: "Fitted") -> "Live":
    """A view on the terminal that its `update` replaces."""
    from rich.live import Live

    return Live(first, console=terminal(), auto_refresh=False)


def fail(lines: Iterable[object], code: ExitCode = ExitCode.FAILED) -> NoReturn:
    """Print each line to standard error and exit with `code`."""
    say(*(f"ccm-supervisor: {line}" for line in lines), err=True)
    raise SystemExit(code)


@contextmanager
def reported() -> Iterator[None]:
    """What is raised inside and has a remedy becomes lines and an exit code, not a traceback."""
    try:
        yield
    except ConfigurationFaults as faults:
        fail(faults.faults, ExitCode.CONFIGURATION)
    except ConfigurationFault as fault:
        fail([fault], ExitCode.CONFIGURATION)
    except (CannotListen, CloudError, KubernetesError, Unreachable) as error:
        fail([error])
