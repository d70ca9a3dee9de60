"""The process of the simulated cloud: command line, readiness file, signals."""

import asyncio
import os
import signal
import sys
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click
import orjson

from ccm.errors import ExitCode
from ccm.sandbox.cloud.ledger import WHOLE, Conditions
from ccm.sandbox.cloud.limits import Rate
from ccm.sandbox.cloud.problems import Problem, invalid
from ccm.sandbox.cloud.server import CloudServer
from ccm.sandbox.cloud.service import Tokens


def rate(text: str) -> Rate:
    """`20` or `20:40`: calls a second, and how many at once (a second's worth if not said)."""
    per_second, _, burst = text.partition(":")
    try:
        return Rate(float(per_second), int(burst) if burst else max(1, int(float(per_second))))
    except (ValueError, Problem) as wrong:
        raise click.BadParameter(f"{text!r} is not RATE or RATE:BURST: {wrong}") from wrong


def condition(text: str) -> tuple[str, float]:
    """`retention=5`: one field of `Conditions`."""
    name, _, number = text.partition("=")
    known = [field.name for field in fields(Conditions)]
    if name not in known:
        raise click.BadParameter(f"{name!r} is not a condition: {', '.join(known)}")
    try:
        return name, int(number) if name in WHOLE else float(number)
    except ValueError as wrong:
        raise click.BadParameter(f"{number!r} is not a number") from wrong


@dataclass(frozen=True, slots=True)
class Start:
    """What the process is started with."""

    url_file: Path | None
    seed: object
    read_rate: Rate | None
    write_rate: Rate | None


@click.command(context_settings={"show_default": True})
@click.option("--port", default=0, help="Port on loopback; 0 takes a free one.")
@click.option("--url-file", type=click.Path(path_type=Path), help="Written once it listens.")
@click.option("--page", default=100, help="Most records in an answer.")
@click.option("--latency", default=0.0, help="Seconds that every call takes.")
@click.option("--read-rate", type=rate, help="Reads a second[:burst]; no limit if not set.")
@click.option("--write-rate", type=rate, help="Writes a second[:burst].")
@click.option("--condition", "settings", type=condition, multiple=True, help="Any other condition.")
@click.option("--token", default=Tokens().full, help="Bearer token that may do everything.")
@click.option("--read-only-token", default=Tokens().read_only, help="Bearer token for reads.")
@click.option("--seed-file", type=click.Path(path_type=Path), help="State as /admin/state has it.")
def main(
    port: int,
    page: int,
    latency: float,
    settings: tuple[tuple[str, float], ...],
    token: str,
    read_only_token: str,
    url_file: Path | None,
    seed_file: Path | None,
    read_rate: Rate | None,
    write_rate: Rate | None,
) -> None:
    """Run a simulated cloud until SIGTERM or SIGINT."""
    try:
        seed = read_seed(seed_file) if seed_file else {}
        conditions: dict[str, Any] = {"page": page, "latency": latency, **dict(settings)}
        server = CloudServer(port, Tokens(token, read_only_token), **conditions)
        asyncio.run(serve(server, Start(url_file, seed, read_rate, write_rate)))
    except (OSError, Problem) as fault:
        click.echo(f"the simulated cloud cannot run: {fault}", err=True)
        sys.exit(ExitCode.CONFIGURATION)


def read_seed(path: Path) -> object:
    """The JSON in a seed file."""
    try:
        return orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as wrong:
        raise invalid(f"{path} is not JSON: {wrong}") from wrong


async def serve(server: CloudServer, start: Start) -> None:
    """Listen, say where, and wait for a signal."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    server.state.load(start.seed)
    server.limits.set("read", start.read_rate)
    server.limits.set("write", start.write_rate)
    async with server:
        if start.url_file:
            write_whole(start.url_file, server.url)
        click.echo(f"simulated cloud at {server.url}")
        await stopping.wait()


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees all of it or none."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(temporary).replace(path)
