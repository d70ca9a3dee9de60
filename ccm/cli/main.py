"""The command `ccm-supervisor`: a table of commands, each imported only when it is called."""

import importlib
from typing import Any

import click

COMMANDS = {
    "check": "ccm.cli.check:check",
    "deletions": "ccm.cli.deletions:deletions",
    "explain": "ccm.cli.explain:explain",
    "log-level": "ccm.cli.log_level:log_level",
    "manifests": "ccm.cli.manifests:manifests",
    "orphans": "ccm.cli.orphans:orphans",
    "plan": "ccm.cli.plan:plan",
    "provider": "ccm.cli.provider_new:provider",
    "providers": "ccm.cli.providers:providers",
    "reload": "ccm.cli.reload:reload",
    "restart": "ccm.cli.restart:restart",
    "sandbox": "ccm.cli.sandbox:sandbox",
    "scale": "ccm.cli.scale:scale",
    "start": "ccm.cli.start:start",
    "status": "ccm.cli.status:status",
    "stop": "ccm.cli.stop:stop",
    "version": "ccm.cli.version:version",
}
"""Command name → where it is. A spawned worker imports this module: it must stay light."""


class LazyGroup(click.Group):
    """A group whose commands stand in `table` and are imported on use."""

    def __init__(self, *args: Any, table: dict[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self._table, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        where = self._table.get(cmd_name)
        if where is None:
            return super().get_command(ctx, cmd_name)
        module, _, name = where.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"max_content_width": 100})
def main() -> None:
    """A Kubernetes cloud controller manager whose controllers run in processes of their own."""


def drop_in() -> None:
    """The command `cloud-controller-manager`: `ccm-supervisor start` under upstream's name."""
    from ccm.cli.start import start

    start(prog_name="cloud-controller-manager")


if __name__ == "__main__":
    main()
