"""The command `ccm-supervisor`: a table of commands, each imported only when it is called."""

import importlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import click

from ccm import __version__
from ccm.cli.reporting import Group, example, reported

SECTIONS = {
    "Run it": {
        "start": "ccm.cli.start:start",
        "stop": "ccm.cli.operate:stop",
        "restart": "ccm.cli.operate:restart",
        "scale": "ccm.cli.operate:scale",
        "reload": "ccm.cli.operate:reload",
        "deletions": "ccm.cli.operate:deletions",
        "log-level": "ccm.cli.operate:log_level",
    },
    "Look at it": {
        "status": "ccm.cli.status:status",
        "explain": "ccm.cli.status:explain",
        "orphans": "ccm.cli.orphans:orphans",
    },
    "Before you start it": {
        "check": "ccm.cli.check:check",
        "plan": "ccm.cli.plan:plan",
        "manifests": "ccm.cli.manifests:manifests",
        "providers": "ccm.cli.providers:providers",
    },
    "Try it": {"sandbox": "ccm.cli.sandbox:sandbox"},
    "Write a provider": {"provider": "ccm.cli.providers:provider"},
    "About this command": {
        "completion": "ccm.cli.about:completion",
        "version": "ccm.cli.about:version",
    },
}
"""Command name → where it is, as the help groups them.

A spawned worker imports this module: it must stay light.
"""

COMMANDS = {name: where for section in SECTIONS.values() for name, where in section.items()}


class LazyGroup(Group):
    """A group whose commands stand in `SECTIONS` and are imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:  # click knows only commands that are imported
            raise click.NoSuchCommand(error.command_name, None, COMMANDS, ctx) from None

    def sections(self, ctx: click.Context) -> Mapping[str, Iterable[str]]:
        return SECTIONS

    def invoke(self, ctx: click.Context) -> Any:
        with reported():
            return super().invoke(ctx)


@click.group(
    cls=LazyGroup,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
    epilog=example("ccm-supervisor start --help", "ccm-supervisor sandbox"),
)
@click.version_option(__version__, message="ccm-supervisor %(version)s")
def main() -> None:
    """A Kubernetes cloud controller manager whose controllers run in processes of their own."""


def drop_in() -> None:
    """The command `cloud-controller-manager`: `ccm-supervisor start` under upstream's name.

    Manifests of some upstream controllers give its path as the first of the arguments.
    """
    from ccm.cli.start import start

    given = sys.argv[1:]
    if given and given[0].startswith("/") and given[0].endswith("cloud-controller-manager"):
        del given[0]
    with reported():
        start(given, prog_name="cloud-controller-manager")


if __name__ == "__main__":
    main()
