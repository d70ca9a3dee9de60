"""`ccm-supervisor version`."""

import click

from ccm import __version__


@click.command()
def version() -> None:
    """Print the version."""
    click.echo(f"ccm-supervisor {__version__}")
