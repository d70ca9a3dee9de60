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

from ccm.cli.completion import TakesStartFlags
from ccm.cli.reporting import Heading, example, output_option, say, say_document
from ccm.errors import CloudError, ExitCode
from ccm.model.objects import Json

if TYPE_CHECKING:
    from ccm.dry_run.cluster import Change
    from ccm.dry_run.plan import Plan
    from ccm.settings import Reading

MAX_VALUE_LENGTH = 80  # characters
_SIGNS = {"create": "+", "update": "~", "delete": "-"}


@click.command(
    cls=TakesStartFlags,
    context_settings={"ignore_unknown_options": True},
    epilog=example("ccm-supervisor plan --cloud-provider=aws --cloud-config=cloud.conf"),
)
@output_option("text")
@click.option("--timeout", default=120.0, show_default=True, help="Seconds it may take.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def plan(output: str, timeout: float, flags: tuple[str, ...]) -> None:
    """Show what the controllers would change now, and change nothing.

    Takes the FLAGS of `start`. A dry run: the real controllers work on a copy of Nodes, Services
    and PersistentVolumes and read from the cloud; nothing is written to either. Exits with 1 when
    there are Warnings, the cloud does not let us read, or it did not finish in time.
    """
    result = asyncio.run(_dry_run(flags, timeout))
    if output == "text":
        say(*_lines(result))
    else:
        say_document("plan/v1", asdict(result), output)
    is_good = result.is_complete and not result.problems
    sys.exit(ExitCode.OK if is_good else ExitCode.FAILED)


async def _dry_run(flags: tuple[str, ...], timeout: float) -> "Plan":
    from ccm.cloud.registry import check_name
    from ccm.dry_run.plan import make_plan
    from ccm.kube import config
    from ccm.log import set_up
    from ccm.settings import read, read_arguments

    reading = read(read_arguments(flags), os.environ)
    settings = reading.settings
    check_name(settings.cloud_provider)
    set_up("plan", settings.logging_format, settings.v or -1)
    access = await config.load(settings.kubeconfig, settings.master)
    await _require_reads(reading)
    return await make_plan(settings, access, timeout)


async def _require_reads(reading: "Reading") -> None:
    """Raise `CloudError` when the cloud lets us read nothing: each object would wait in vain."""
    from ccm.checks.cloud import check_reads
    from ccm.checks.context import CheckContext
    from ccm.checks.finding import CheckState, NotChecked

    context = CheckContext(reading.settings, reading.raw_values)
    try:
        for finding in await check_reads(context):
            if finding.state is CheckState.FAILED:
                raise CloudError(f"{finding.message}; {finding.remedy}")
    except NotChecked:
        pass  # the dry run reports why the provider does not start
    finally:
        await context.close()


def _lines(result: "Plan") -> Iterator[str]:
    for (kind, name), changes in groupby(result.kubernetes, lambda item: (item.kind, item.name)):
        yield Heading(f"{kind} {name}")
        yield from map(_field, changes)
    for _, same in groupby(result.cloud, lambda change: change["about"]):
        yield from _cloud_lines([*same])
    if result.is_complete and not result.kubernetes and not result.cloud:
        yield "Nothing would change."
    pending = [f"{name}: {why}" for name, why in sorted(result.waiting.items())]
    for title, lines in (("Warnings", result.problems), ("Pending", pending)):
        yield from [Heading(f"{title}:")] if lines else []
        yield from (f"  {line}" for line in lines)
    cost = ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in result.cost.items())
    yield f"Cost: {cost}, {len(result.cloud)} changes in the cloud."
    if not result.is_complete:
        yield "The dry run did not finish in time: changes may be missing."


def _cloud_lines(changes: list[Json]) -> Iterator[str]:
    """Of one thing; deleted and created in one plan, it is replaced: a route that leads nowhere."""
    if {change["does"] for change in changes} == {"create", "delete"}:
        calls = sorted({(change["does"] == "create", change["call"]) for change in changes})
        by = " and ".join(call for _, call in calls)
        yield f"{_SIGNS['update']} {changes[0]['about']}, replaced by {by}"
        return
    for change in changes:
        ports, nodes = ", ".join(change.get("ports", ())), ", ".join(change.get("nodes", ()))
        parts = (f"{name}: {part}" for name, part in (("ports", ports), ("nodes", nodes)) if part)
        about = f"{_SIGNS[change['does']]} {change['about']}, by {change['call']}"
        yield "; ".join((about, *parts))


def _field(change: "Change") -> str:
    if not change.field:
        return f"  {_SIGNS['delete']} the object"
    does = "create" if change.before is None else "delete" if change.after is None else "update"
    values = [_text(value) for value in (change.before, change.after) if value is not None]
    return f"  {_SIGNS[does]} {change.field}: {' -> '.join(values)}"


def _text(value: Any) -> str:
    """A value on one line, cut where it is long."""
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[: MAX_VALUE_LENGTH - 1]}…"
