"""`ccm-supervisor providers`."""

import click


@click.command()
def providers() -> None:
    """List the names that --cloud-provider accepts."""
    from ccm.cloud.registry import known_providers

    for name in known_providers():
        click.echo(name)
