"""The commands that show what a running supervisor does: `status`, and `explain` for one object."""

import time
from collections.abc import Iterator
from typing import Any

import click
import orjson

from ccm.cli.operate import answer_of, runtime_dir_option
from ccm.cli.reporting import Heading, say, say_json, terminal

WATCH_INTERVAL = 1.0  # seconds


@click.command()
@click.option("--watch", is_flag=True, help="Show it again every second until Ctrl-C.")
@click.option("-o", "output", type=click.Choice(["table", "json"]), default="table")
@runtime_dir_option
def status(watch: bool, output: str, runtime_dir: str) -> None:
    """Show leadership, workers, what is pending and why, and the cloud budget."""
    if output == "json":
        while True:
            answer = answer_of(runtime_dir, "status")
            say_json(answer, 0 if watch else orjson.OPT_INDENT_2)
            if not watch:
                return
            time.sleep(WATCH_INTERVAL)
    from rich.live import Live

    from ccm.cli.status_view import status_view

    if not watch:
        terminal().print(status_view(answer_of(runtime_dir, "status")))
        return
    first = status_view(answer_of(runtime_dir, "status"))
    with Live(first, console=terminal(), screen=False, auto_refresh=False) as live:
        while True:
            time.sleep(WATCH_INTERVAL)
            live.update(status_view(answer_of(runtime_dir, "status")), refresh=True)


@click.command()
@click.argument("kind", type=click.Choice(["node", "service", "pv"]))
@click.argument("name")
@click.option("-n", "--namespace", default="default", show_default=True, help="Of a Service.")
@click.option("-o", "output", type=click.Choice(["text", "json"]), default="text")
@runtime_dir_option
def explain(kind: str, name: str, namespace: str, output: str, runtime_dir: str) -> None:
    """Show the last decision about an object, the details it rests on, and what comes next.

    NAME of a Service may be NAMESPACE/NAME.
    """
    if kind == "service" and "/" not in name:
        name = f"{namespace}/{name}"
    answer = answer_of(runtime_dir, "explain", kind=kind, name=name)
    if output == "json":
        say_json(answer)
    else:
        say(*_explanation(answer))


def _explanation(answer: dict[str, Any]) -> Iterator[str]:
    yield Heading(f"{answer['kind']} {answer['name']}")
    if not answer["workers"]:
        yield "  no controller reconciles it: see --controllers"
    for worker in answer["workers"]:
        decided = worker.get("decided", "is not running")
        yield f"  {worker['worker']} ({worker['state']}): {decided}"
        yield from (f"    {line}" for line in _of_worker(worker))
    if deletion := answer.get("deletion"):
        left = f", {deletion['seconds']:g} s left" if deletion.get("seconds") else ""
        yield f"  supervisor, on deleting it: {deletion['verdict']} ({deletion['reason']}{left})"
        yield from (f"    {deletion[part]}" for part in ("meaning", "remedy") if part in deletion)


def _of_worker(worker: dict[str, Any]) -> Iterator[str]:
    if worker.get("quarantined"):
        yield f"quarantined: {worker['quarantined']}"
    if worker.get("decided_seconds_ago") is not None:
        yield f"decided {worker['decided_seconds_ago']:g} s ago; {_next_reconcile(worker)}"
    yield from (f"{name}: {text}" for name, text in worker.get("details", {}).items())


def _next_reconcile(worker: dict[str, Any]) -> str:
    if worker["in_flight"]:
        return "being reconciled now"
    failures = f" after {worker['failures']} failures in a row" if worker["failures"] else ""
    if worker["next_try_seconds"] is not None:
        return f"reconciled again in {worker['next_try_seconds']:g} s{failures}"
    return f"reconciled again when something changes{failures}"
