"""What a shell completes beyond the options of commands: flags of `start`, workers, kinds."""

from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem


class TakesStartFlags(click.Command):
    """A command that reads the flags of `start` besides its own options."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        own = super().shell_complete(ctx, incomplete)
        taken = {item.value for item in own}
        return own + [item for item in _start_flags(incomplete) if item.value not in taken]


def start_flags(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """For an argument after `--`."""
    return [*_start_flags(incomplete)]


def workers(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The workers of the supervisor that runs here; none when there is none to ask."""
    from ccm.bus.control import NotRunning, ask
    from ccm.bus.paths import RuntimePaths
    from ccm.directories import default_runtime_dir

    directory = ctx.params.get("runtime_dir") or default_runtime_dir()
    try:
        answer = ask(
            RuntimePaths(Path(directory).absolute()).control, {"command": "status"}, timeout=1.0
        )
    except NotRunning:
        return []
    names = [worker["name"] for worker in answer["workers"]]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _start_flags(incomplete: str) -> Iterator[CompletionItem]:
    from ccm.settings import flags

    for flag in flags():
        if incomplete.startswith("-") and flag.label.startswith(incomplete):
            yield CompletionItem(flag.label, help=flag.help)
