"""`ccm-supervisor deletions [freeze|allow]`: what may be deleted, and the switch against it."""

import os
from collections.abc import Iterator
from typing import Any

import click

from ccm.cli.asking import answer_of, runtime_dir_option
from ccm.durations import format_duration


@click.group(invoke_without_command=True)
@runtime_dir_option
@click.pass_context
def deletions(context: click.Context, runtime_dir: str) -> None:
    """Show whether nodes may be deleted, and what stands in the way of each that vanished."""
    context.default_map = {name: {"runtime_dir": runtime_dir} for name in ("freeze", "allow")}
    if context.invoked_subcommand is None:
        answer = answer_of(runtime_dir, {"command": "deletions", "action": "show"})
        click.echo("\n".join(_lines(answer)))


@deletions.command()
@click.option("--reason", metavar="TEXT", default="", help="Why, for whoever reads the status.")
@runtime_dir_option
def freeze(reason: str, runtime_dir: str) -> None:
    """Delete no node, also after a restart, until 'deletions allow'."""
    request = {"command": "deletions", "action": "freeze", "reason": reason, "by": _who()}
    click.echo(answer_of(runtime_dir, request)["ok"])


@deletions.command()
@runtime_dir_option
def allow(runtime_dir: str) -> None:
    """Lift a freeze, and a hold after many nodes vanished at once: they really are gone."""
    click.echo(answer_of(runtime_dir, {"command": "deletions", "action": "allow"})["ok"])


def _who() -> str:
    return os.environ.get("SUDO_USER") or os.environ.get("USER") or f"uid {os.getuid()}"


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    if frozen := facts["frozen"]:
        yield f"frozen since {frozen['at']} by {frozen['by']}: {frozen['why']}"
    if facts["trouble"]:
        yield f"stopped: {facts['trouble']}"
    if facts["held"]:
        held_for = format_duration(round(facts["held_seconds"]))
        yield f"held for {held_for}: {facts['held']}"
    if not (frozen or facts["trouble"] or facts["held"]):
        yield "allowed"
    counts, budget = facts["counts"], facts["budget"]
    window = format_duration(budget["window_seconds"])
    yield f"budget: {budget['left']} of {budget['limit']} left in {window}"
    yield f"since the start: {counts['proposed']} proposed, {counts['permitted']} permitted"
    width = max((len(item["node"]) for item in facts["candidates"]), default=0)
    for item in facts["candidates"]:
        wait = item.get("seconds")
        when = f", not before {format_duration(wait)} from now" if wait else ""
        yield f"  {item['node']:{width}}  {item['verdict']}: {item['reason']}{when}"
    if facts["more_candidates"]:
        yield f"  and {facts['more_candidates']} more"
