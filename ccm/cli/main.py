"""The command `ccm-supervisor`: a table of commands, each imported only when it is called."""

import importlib
from typing import Any

import click

from ccm import __version__
from ccm.cli.reporting import reported, say

COMMANDS = {
    "check": "ccm.cli.check:check",
    "deletions": "ccm.cli.operate:deletions",
    "explain": "ccm.cli.status:explain",
    "log-level": "ccm.cli.operate:log_level",
    "manifests": "ccm.cli.manifests:manifests",
    "orphans": "ccm.cli.orphans:orphans",
    "plan": "ccm.cli.plan:plan",
    "provider": "ccm.cli.providers:provider",
    "providers": "ccm.cli.providers:providers",
    "reload": "ccm.cli.operate:reload",
    "restart": "ccm.cli.operate:restart",
    "sandbox": "ccm.cli.sandbox:sandbox",
    "scale": "ccm.cli.operate:scale",
    "start": "ccm.cli.start:start",
    "status": "ccm.cli.status:status",
    "stop": "ccm.cli.operate:stop",
}
"""Command name → where it is. A spawned worker imports this module: it must stay light."""


class LazyGroup(click.Group):
    """A group whose commands stand in `COMMANDS` and are imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        where = COMMANDS.get(cmd_name)
        if where is None:
            return super().get_command(ctx, cmd_name)
        module, _, name = where.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        with reported():
            return super().invoke(ctx)


@click.group(cls=LazyGroup, context_settings={"max_content_width": 100})
def main() -> None:
    """A Kubernetes cloud controller manager whose controllers run in processes of their own."""


@main.command()
def version() -> None:
    """Print the version."""
    say(f"ccm-supervisor {__version__}")


def drop_in() -> None:
    """The command `cloud-controller-manager`: `ccm-supervisor start` under upstream's name."""
    from ccm.cli.start import start

    with reported():
        start(prog_name="cloud-controller-manager")


if __name__ == "__main__":
    main()
