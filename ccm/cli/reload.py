"""`ccm-supervisor reload`."""

import click

from ccm.cli.asking import answer_of, runtime_dir_option


@click.command()
@runtime_dir_option
def reload(runtime_dir: str) -> None:
    """Read the cloud configuration and credentials anew; if they do not work, the old ones stay.

    The verbosity is read anew, too, where it is in the file of --config.
    """
    click.echo(answer_of(runtime_dir, {"command": "reload"})["ok"])
