"""`ccm-supervisor status`: what the supervisor and its workers are doing, as a table or JSON."""

import time
from typing import Any

import click
import orjson

from ccm.cli.asking import answer_of, runtime_dir_option


@click.command()
@click.option("--watch", is_flag=True, help="Show it again every second until Ctrl-C.")
@click.option("-o", "output", type=click.Choice(["table", "json"]), default="table")
@runtime_dir_option
def status(watch: bool, output: str, runtime_dir: str) -> None:
    """Show leadership, workers, what they wait for, and the cloud budget."""
    if output == "json":
        while True:
            answer = answer_of(runtime_dir, {"command": "status"})
            click.echo(orjson.dumps(answer, option=0 if watch else orjson.OPT_INDENT_2))
            if not watch:
                return
            time.sleep(1.0)
    _show_table(watch, runtime_dir)


def _show_table(watch: bool, runtime_dir: str) -> None:
    from rich.console import Console
    from rich.live import Live

    from ccm.cli.tables import status_view

    def ask() -> dict[str, Any]:
        return answer_of(runtime_dir, {"command": "status"})

    if not watch:
        Console().print(status_view(ask()))
        return
    with Live(status_view(ask()), screen=False, auto_refresh=False) as live:
        while True:
            time.sleep(1.0)
            live.update(status_view(ask()), refresh=True)
