"""Asking a running supervisor: what the commands that talk to it share."""

from pathlib import Path
from typing import Any

import click

from ccm.bus.control import NotRunning, ask
from ccm.bus.paths import RuntimePaths
from ccm.errors import ExitCode
from ccm.settings import default_runtime_dir

runtime_dir_option = click.option(
    "--runtime-dir",
    metavar="DIR",
    default=default_runtime_dir,
    help="Runtime directory of the supervisor.  [default: as for 'start']",
)


def answer_of(runtime_dir: str, request: dict[str, Any], timeout: float = 10.0) -> dict[str, Any]:
    """The supervisor's answer; ends the command with a clear line when there is none."""
    try:
        answer = ask(RuntimePaths(Path(runtime_dir).absolute()).control, request, timeout)
    except NotRunning as error:
        click.echo(
            f"ccm-supervisor: {error}; is it running, and with this --runtime-dir?", err=True
        )
        raise SystemExit(ExitCode.FAILED) from error
    if "error" in answer:
        click.echo(f"ccm-supervisor: {answer['error']}", err=True)
        raise SystemExit(ExitCode.USAGE)
    return answer
