"""`python -m bench [PART ...]`: measure, print a JSON line and a table for each part."""

import asyncio
import compileall
import importlib
import os
import sys
from dataclasses import replace

import click
import orjson

from bench.figures import table
from bench.plan import Plan
from bench.results import keep

USUAL = Plan()
PARTS = (
    "initialise",
    "heartbeats",
    "latency",
    "kill",
    "failover",
    "services",
    "routes",
    "storm",
    "shards",
    "many",
    "large",
    "huge",
    "tenants",
    "aws",
    "openstack",
    "clouds",
)
SMOKE = "smoke"  # not part of a whole run, and not kept
COUNT = click.IntRange(min=1)
POSITIVE = click.FloatRange(min=0, min_open=True)


def numbers(context: click.Context, option: click.Parameter, text: str) -> tuple[int, ...]:
    """What stands between the commas."""
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise click.BadParameter(f"{text!r} is not one or more positive numbers: 100,1000")
    return tuple(map(int, parts))


@click.command(context_settings={"show_default": True})
@click.argument("parts", nargs=-1, type=click.Choice([*PARTS, SMOKE]))
@click.option("--nodes", "sizes", callback=numbers, default="100,1000,5000", help="Sizes.")
@click.option("--shards", callback=numbers, default="1,2,4", help="Numbers of node workers.")
@click.option(
    "--repeats",
    default=USUAL.repeats,
    type=click.IntRange(min=0),
    help="Times that each side runs; 0 shows what --runs has.",
)
@click.option("--page", default=USUAL.page, type=COUNT, help="Machines in one answer of the cloud.")
@click.option(
    "--latency",
    default=USUAL.latency,
    type=click.FloatRange(min=0),
    help="Seconds that a call to the cloud takes.",
)
@click.option(
    "--quota", default=USUAL.quota, type=POSITIVE, help="Reads a second that the cloud allows."
)
@click.option("--services", default=USUAL.services, type=COUNT, help="Services with a balancer.")
@click.option("--beats", default=USUAL.beats, type=POSITIVE, help="Seconds of heartbeats.")
@click.option("--side", "sides", multiple=True, help="A side to run, instead of all; repeatable.")
@click.option(
    "--runs",
    type=click.Path(dir_okay=False),
    default="",
    help="Keep each run of `initialise` in this file, and count those that it has.",
)
@click.option(
    "--profiles",
    type=click.Path(file_okay=False),
    default="",
    help="Write flame graphs of our processes into this folder.",
)
@click.option("--keep/--no-keep", "is_kept", default=True, help="Write bench/RESULTS.md.")
def main(parts: tuple[str, ...], is_kept: bool, **sizes: object) -> None:
    """Measure PARTS, or all of them, on a real API server."""
    for package in ("ccm", "workers"):  # as where it is installed: no start compiles anything
        compileall.compile_dir(package, quiet=1)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    plan = replace(USUAL, **sizes)  # type: ignore[arg-type]
    broken: list[str] = []
    for part in parts or PARTS:
        module = importlib.import_module(f"bench.parts.{part}")
        found = asyncio.run(module.measure(plan))
        click.echo(orjson.dumps({"part": part, "rows": found.rows, "broken": found.broken}))
        about = str(module.__doc__)
        click.echo(f"\n{about.splitlines()[0]}\n\n{table(found.rows)}\n")
        broken += found.broken
        if is_kept and part != SMOKE and (plan.runs or not plan.sides):
            keep(part, about, plan, found)
    for line in broken:
        click.echo(line, err=True)
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
