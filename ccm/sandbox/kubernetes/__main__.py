"""The embedded Kubernetes API server as a process: `python -m ccm.sandbox.kubernetes`."""

import asyncio
from pathlib import Path

import click

from ccm.sandbox.kubernetes.server import SandboxServer
from ccm.sandbox.serving import serve


@click.command()
@click.option("--url-file", type=click.Path(path_type=Path), help="Written once it listens.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Written once it listens.")
def main(url_file: Path | None, kubeconfig: Path | None) -> None:
    """Run an embedded API server on loopback until SIGTERM or SIGINT."""
    server = SandboxServer()
    asyncio.run(serve(server, url_file, lambda: kubeconfig and server.kubeconfig(kubeconfig)))


if __name__ == "__main__":
    main()
