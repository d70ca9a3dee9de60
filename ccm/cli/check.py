"""`ccm-supervisor check`: what would not work after a start with these flags, and the remedies."""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ccm import __version__
from ccm.cli.reporting import FORMATS, example, say, say_document, show
from ccm.cli.start import FlagOption, StartCommand
from ccm.errors import ExitCode
from ccm.printable import printable
from ccm.settings import Reading, flags, read, read_arguments

if TYPE_CHECKING:
    from rich.table import Table

    from ccm.checks.run import CheckResult

COLOURS = {"ok": "green", "not checked": "cyan", "warning": "yellow", "failed": "bold red"}
OUTPUT = click.Option(
    ["-o", "--output"], type=click.Choice(["table", *FORMATS]), help="How to show the findings."
)


def _run(words: list[str]) -> None:
    output, words = _taken_output(words)
    line = read_arguments(words)
    if line.wants_help:
        say(*click.get_current_context().get_help().splitlines())
        return
    sys.exit(asyncio.run(_check(read(line, os.environ), output)))


def _taken_output(words: Sequence[str]) -> tuple[str, list[str]]:
    """The format that `-o` asks for, and the flags of `start`."""
    chosen, rest, left = "table", list[str](), iter(words)
    for word in left:
        option, separator, value = word.partition("=")
        if option in OUTPUT.opts:
            chosen = OUTPUT.type.convert(value if separator else next(left, ""), OUTPUT, None)
        else:
            rest.append(word)
    return chosen, rest


async def _check(reading: Reading, output: str) -> ExitCode:
    from ccm.checks.context import CheckContext
    from ccm.checks.finding import CheckState
    from ccm.checks.run import CHECKS, run_checks, to_json

    results = await run_checks(CHECKS, CheckContext(reading.settings, reading.raw_values))
    if output == "table":
        show(_table(results), "", _summary(results))
    else:
        report = to_json(results, __version__, reading.settings.cloud_provider)
        say_document("check/v1", report, output)
    is_bad = any(result.state is CheckState.FAILED for result in results)
    return ExitCode.FAILED if is_bad else ExitCode.OK


def _table(results: "Sequence[CheckResult]") -> "Table":
    """One row a finding, the remedy below the message."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("check", "state", "finding"):
        table.add_column(column, no_wrap=column != "finding", overflow="fold")
    for result in results:
        for number, finding in enumerate(result.findings):
            reported = Text(printable(finding.message))
            if finding.remedy:
                reported.append("\n→", "dim").append(f" {printable(finding.remedy)}")
            name = result.name if not number else ""
            table.add_row(name, Text(finding.state, COLOURS[finding.state]), reported)
    return table


def _summary(results: "Sequence[CheckResult]") -> str:
    states = Counter(str(result.state) for result in results)
    counts = [f"{states[state]} {state}" for state in COLOURS if states[state]]
    return f"{len(results)} checks: {', '.join(counts)}"


check = StartCommand(
    "check",
    params=[OUTPUT, *(FlagOption(flag) for flag in flags())],
    callback=_run,
    help="Look for what would not work, without changing anything.\n\nTakes the flags of 'start'.",
    epilog=example("ccm-supervisor check --cloud-provider=aws --cloud-config=cloud.conf"),
    context_settings={"max_content_width": 100},
)
