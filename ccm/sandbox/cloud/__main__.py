"""The simulated cloud as a process: `python -m ccm.sandbox.cloud`."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import click
import orjson

from ccm.errors import ExitCode
from ccm.sandbox.cloud.codec import CloudApiError, decode_fields
from ccm.sandbox.cloud.server import CloudServer
from ccm.sandbox.cloud.simulation import CallRate, CloudParameters
from ccm.sandbox.serving import serve


def rate(text: str) -> CallRate:
    """`20` or `20:40`: calls a second, and how many at once (a second's worth if not said)."""
    per_second, _, burst = text.partition(":")
    try:
        return CallRate(float(per_second), int(burst) if burst else max(1, int(float(per_second))))
    except (ValueError, CloudApiError) as error:
        raise click.BadParameter(f"{text!r} is not RATE or RATE:BURST: {error}") from error


def parameter(text: str) -> dict[str, Any]:
    """`retention=5`: one field of `CloudParameters`."""
    name, _, number = text.partition("=")
    try:
        return decode_fields(CloudParameters, {name: orjson.loads(number)})
    except (ValueError, CloudApiError) as error:
        raise click.BadParameter(f"{text!r} is not a parameter and its number: {error}") from error


@click.command(context_settings={"show_default": True})
@click.option("--url-file", type=click.Path(path_type=Path), help="Written once it listens.")
@click.option("--page", default=100, help="Most records in an answer.")
@click.option("--latency", default=0.0, help="Seconds that every call takes.")
@click.option("--read-rate", type=rate, help="Reads a second[:burst]; no limit if not set.")
@click.option("--write-rate", type=rate, help="Writes a second[:burst].")
@click.option("--parameter", "others", type=parameter, multiple=True, help="Any other parameter.")
@click.option("--seed-file", type=click.Path(path_type=Path), help="State as /admin/state has it.")
def main(
    page: int,
    latency: float,
    others: tuple[dict[str, Any], ...],
    url_file: Path | None,
    seed_file: Path | None,
    read_rate: CallRate | None,
    write_rate: CallRate | None,
) -> None:
    """Run a simulated cloud until SIGTERM or SIGINT."""
    parameters: dict[str, Any] = {"page": page, "latency": latency}
    for other in others:
        parameters.update(other)
    try:
        server = CloudServer(**parameters)
        if seed_file:
            server.state.load(orjson.loads(seed_file.read_bytes()))
        server.limits.set("read", read_rate)
        server.limits.set("write", write_rate)
        asyncio.run(serve(server, url_file))
    except orjson.JSONDecodeError as error:
        click.echo(f"{seed_file} is not JSON: {error}", err=True)
        sys.exit(ExitCode.CONFIGURATION)
    except (OSError, CloudApiError) as error:
        click.echo(f"the simulated cloud cannot run: {error}", err=True)
        sys.exit(ExitCode.CONFIGURATION)


if __name__ == "__main__":
    main()
