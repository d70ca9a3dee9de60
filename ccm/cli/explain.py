"""`ccm-supervisor explain`: why one object is as it is, in the words of those who look after it."""

from collections.abc import Iterator
from typing import Any

import click
import orjson

from ccm.cli.asking import answer_of, runtime_dir_option


@click.command()
@click.argument("kind", type=click.Choice(["node", "service", "pv"]))
@click.argument("name")
@click.option("-n", "--namespace", default="default", show_default=True, help="Of a Service.")
@click.option("-o", "output", type=click.Choice(["text", "json"]), default="text")
@runtime_dir_option
def explain(kind: str, name: str, namespace: str, output: str, runtime_dir: str) -> None:
    """Tell what was last decided about an object, on what evidence, and what comes next.

    NAME of a Service may be NAMESPACE/NAME.
    """
    if kind == "service" and "/" not in name:
        name = f"{namespace}/{name}"
    answer = answer_of(runtime_dir, {"command": "explain", "kind": kind, "name": name})
    if output == "json":
        click.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2))
    else:
        click.echo("\n".join(_lines(answer)))


def _lines(answer: dict[str, Any]) -> Iterator[str]:
    yield click.style(f"{answer['kind']} {answer['name']}", bold=True)
    if not answer["workers"]:
        yield "  no worker looks after it: see --controllers"
    for known in answer["workers"]:
        yield f"  {known['worker']} ({known['state']}): {known.get('decided', 'is not running')}"
        yield from (f"    {line}" for line in _about(known))
    if deletion := answer.get("deletion"):
        left = f", {deletion['seconds']:g} s left" if deletion.get("seconds") else ""
        yield f"  supervisor, on deleting it: {deletion['verdict']} ({deletion['reason']}{left})"
        yield from (f"    {deletion[part]}" for part in ("meaning", "remedy") if part in deletion)


def _about(known: dict[str, Any]) -> Iterator[str]:
    if known.get("quarantined"):
        yield f"quarantined: {known['quarantined']}"
    if known.get("decided_seconds_ago") is not None:
        yield f"decided {known['decided_seconds_ago']:g} s ago; {_next(known)}"
    yield from (f"{name}: {text}" for name, text in known.get("details", {}).items())


def _next(known: dict[str, Any]) -> str:
    if known["in_flight"]:
        return "being worked on now"
    failures = f" after {known['failures']} failures in a row" if known["failures"] else ""
    if known["next_try_seconds"] is not None:
        return f"looked at again in {known['next_try_seconds']:g} s{failures}"
    return f"looked at again when something changes{failures}"
