"""`ccm-supervisor stop`."""

import click

from ccm.cli.asking import answer_of, runtime_dir_option


@click.command()
@runtime_dir_option
def stop(runtime_dir: str) -> None:
    """Stop the supervisor in order: work in hand is finished, the lease is given back."""
    click.echo(answer_of(runtime_dir, {"command": "stop"})["ok"])
