"""`ccm-supervisor check`: what of a start with these flags would not work, with the remedies."""

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import orjson

from ccm import __version__
from ccm.cli.start import FlagOption, StartCommand
from ccm.errors import ConfigurationFaults, ExitCode
from ccm.settings import Reading, flags, read, read_arguments

if TYPE_CHECKING:
    from ccm.checks.run import CheckResult

FORMATS = ("table", "json")
OUTPUT = click.Option(
    ["-o", "output"], type=click.Choice(FORMATS), help="How to show what was found."
)


def _run(words: list[str]) -> None:
    output, words = _taken_output(words)
    line = read_arguments(words)
    if line.wants_help:
        click.echo(click.get_current_context().get_help())
        return
    try:
        reading = read(line, os.environ)
    except ConfigurationFaults as faults:
        for fault in faults.faults:
            click.echo(f"ccm-supervisor: {fault}", err=True)
        sys.exit(ExitCode.CONFIGURATION)
    sys.exit(asyncio.run(_check(reading, output)))


def _taken_output(words: Sequence[str]) -> tuple[str, list[str]]:
    """The format that `-o` asks for, and the flags of `start`."""
    output, rest = FORMATS[0], list(words)
    while "-o" in rest:
        place = rest.index("-o")
        output = rest[place + 1] if place + 1 < len(rest) else ""
        del rest[place : place + 2]
    if output not in FORMATS:
        raise click.BadParameter(f"choose one of {', '.join(FORMATS)}", param_hint="-o")
    return output, rest


async def _check(reading: Reading, output: str) -> ExitCode:
    from ccm.checks.context import CheckContext
    from ccm.checks.finding import CheckState
    from ccm.checks.run import CHECKS, run_checks

    results = await run_checks(CHECKS, CheckContext(reading.settings, reading.given))
    _show(results, reading, output)
    is_bad = any(result.state is CheckState.FAILED for result in results)
    return ExitCode.FAILED if is_bad else ExitCode.OK


def _show(results: "Sequence[CheckResult]", reading: Reading, output: str) -> None:
    from ccm.checks.run import to_json

    if output == "json":
        body = to_json(results, __version__, reading.settings.cloud_provider)
        click.echo(orjson.dumps(body, option=orjson.OPT_INDENT_2))
        return
    from rich.console import Console

    from ccm.cli.check_view import check_view

    Console().print(check_view(results))


check = StartCommand(
    "check",
    params=[OUTPUT, *(FlagOption(flag) for flag in flags())],
    callback=_run,
    help="Look for what would not work, without changing anything; takes the flags of 'start'.",
    context_settings={"max_content_width": 100},
)
