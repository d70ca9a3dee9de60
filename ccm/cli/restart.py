"""`ccm-supervisor restart WORKER`."""

import click

from ccm.cli.asking import answer_of, runtime_dir_option


@click.command()
@click.argument("worker")
@runtime_dir_option
def restart(worker: str, runtime_dir: str) -> None:
    """Let WORKER finish what it has in hand and start it again; the others do not notice."""
    click.echo(answer_of(runtime_dir, {"command": "restart", "worker": worker})["ok"])
