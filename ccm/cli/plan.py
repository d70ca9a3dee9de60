"""`ccm-supervisor plan`: what `start` would change now, and what that would cost."""

import asyncio
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click
import orjson

from ccm.errors import (
    ConfigurationFault,
    ConfigurationFaults,
    ExitCode,
    KubernetesError,
    Unreachable,
)

if TYPE_CHECKING:
    from ccm.dry_run.cluster import Change
    from ccm.dry_run.plan import Plan

WIDEST = 80  # characters of a value
_SIGNS = {"create": "+", "update": "~", "delete": "-"}


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("-o", "output", type=click.Choice(["text", "json"]), default="text")
@click.option("--timeout", default=120.0, show_default=True, help="Most seconds it may take.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def plan(output: str, timeout: float, flags: tuple[str, ...]) -> None:
    """Show what all controllers would change now, in the cluster and in the cloud.

    Takes the FLAGS of `start`. Copies Nodes, Services and PersistentVolumes, lets the real
    controllers work on the copy, asks the cloud, and writes to neither. Ends with 1 when some
    controller was not idle in time, so that the plan may lack something.
    """
    try:
        made = asyncio.run(_make(flags, timeout))
    except (ConfigurationFault, ConfigurationFaults) as fault:
        click.echo(f"ccm-supervisor: {fault}", err=True)
        sys.exit(ExitCode.CONFIGURATION)
    except (KubernetesError, Unreachable) as error:
        click.echo(f"ccm-supervisor: {error}", err=True)
        sys.exit(ExitCode.FAILED)
    if output == "json":
        click.echo(orjson.dumps(asdict(made), option=orjson.OPT_INDENT_2))
    else:
        _show(made)
    sys.exit(ExitCode.OK if made.is_complete else ExitCode.FAILED)


async def _make(flags: tuple[str, ...], timeout: float) -> "Plan":
    from ccm.cloud.registry import check_name
    from ccm.dry_run.plan import make_plan
    from ccm.kube import config
    from ccm.log import set_up
    from ccm.settings.arguments import read_arguments
    from ccm.settings.reading import read

    settings = read(read_arguments(flags), os.environ).settings
    check_name(settings.cloud_provider)
    set_up("plan", settings.logging_format, settings.v or -1)
    access = await config.load(config.Source(settings.kubeconfig, settings.master))
    return await make_plan(settings, access, timeout)


def _show(made: "Plan") -> None:
    for line in _lines(made):
        click.echo(line)


def _lines(made: "Plan") -> Iterator[str]:
    for (kind, name), changes in groupby(made.kubernetes, lambda one: (one.kind, one.name)):
        yield click.style(f"{kind} {name}", bold=True)
        yield from map(_field, changes)
    for change in made.cloud:
        ports, hosts = ", ".join(change.get("ports", ())), ", ".join(change.get("hosts", ()))
        parts = (f"{name}: {part}" for name, part in (("ports", ports), ("hosts", hosts)) if part)
        yield "; ".join((f"{_SIGNS[change['does']]} {change['about']}", *parts))
    if made.is_complete and not made.kubernetes and not made.cloud:
        yield "Nothing would change."
    waiting = [f"{name}: {why}" for name, why in sorted(made.waiting.items())]
    for title, lines in (("What would not work", made.problems), ("Not done", waiting)):
        yield from [click.style(f"{title}:", bold=True)] if lines else []
        yield from (f"  {line}" for line in lines)
    cost = ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in made.cost.items())
    yield f"Cost: {cost}, {len(made.cloud)} changes in the cloud."
    if not made.is_complete:
        yield "Not every controller was idle in time: more may follow."


def _field(change: "Change") -> str:
    if not change.field:
        return f"  {_SIGNS['delete']} the object"
    if change.before is None:
        return f"  {_SIGNS['create']} {change.field}: {_shown(change.after)}"
    if change.after is None:
        return f"  {_SIGNS['delete']} {change.field}: {_shown(change.before)}"
    now, then = _shown(change.before), _shown(change.after)
    return f"  {_SIGNS['update']} {change.field}: {now} -> {then}"


def _shown(value: Any) -> str:
    """A value on one line, cut where it is long."""
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"
