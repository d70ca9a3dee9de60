"""What commands print, all of it through here, and how one ends that cannot do its work."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

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

if TYPE_CHECKING:
    from rich.console import Console


class Heading(str):
    """A line that is shown bold."""


def say(*lines: object, err: bool = False) -> None:
    """Print each on a line of its own, whatever is in it."""
    for line in lines:
        text = printable(line)
        click.echo(click.style(text, bold=True) if isinstance(line, Heading) else text, err=err)


def say_json(value: Any, option: int = orjson.OPT_INDENT_2) -> None:
    """Print the value as JSON."""
    click.echo(printable_json(value, option))


def terminal() -> "Console":
    """For tables; a text in them is no markup. Control characters are for who makes the table."""
    from rich.console import Console

    return Console(markup=False, emoji=False)


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
