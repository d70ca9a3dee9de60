"""`ccm-supervisor scale node N`."""

import click

from ccm.cli.asking import answer_of, runtime_dir_option

PATIENCE = 75.0  # seconds; the supervisor itself gives up earlier


@click.command()
@click.argument("duty", type=click.Choice(["node"]))
@click.argument("count", type=int)
@runtime_dir_option
def scale(duty: str, count: int, runtime_dir: str) -> None:
    """Divide the nodes among COUNT worker processes; nothing is done twice or left out."""
    request = {"command": "scale", "duty": duty, "count": count}
    click.echo(answer_of(runtime_dir, request, PATIENCE)["ok"])
