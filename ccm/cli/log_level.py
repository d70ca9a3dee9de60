"""`ccm-supervisor log-level VERBOSITY`."""

import click

from ccm.cli.asking import answer_of, runtime_dir_option


@click.command()
@click.argument("verbosity", type=int)
@runtime_dir_option
def log_level(verbosity: int, runtime_dir: str) -> None:
    """Change the verbosity of the running processes; 4 and more logs every decision."""
    click.echo(answer_of(runtime_dir, {"command": "log-level", "verbosity": verbosity})["ok"])
