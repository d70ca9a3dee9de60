"""Runs one sandbox as a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from pathlib import Path

from ccm.processes import die_with_parent
from ccm.sandbox.kubernetes.server import CHANGES_KEPT_PER_KIND, SandboxServer


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m ccm.sandbox.kubernetes",
        description="An embedded Kubernetes API server on loopback.",
    )
    parser.add_argument("--port", type=int, default=0, help="0 lets the system choose")
    parser.add_argument("--url-file", type=Path, help="written when the server is ready")
    parser.add_argument("--kubeconfig", type=Path, help="written when the server is ready")
    parser.add_argument("--history", type=int, default=CHANGES_KEPT_PER_KIND, metavar="CHANGES")
    parser.add_argument(
        "--token", action="append", default=[], help="accept this bearer token only"
    )
    parser.add_argument("--die-with-parent", action="store_true")
    return parser.parse_args(arguments)


async def serve(options: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with SandboxServer(
        port=options.port, history=options.history, tokens=options.token
    ) as server:
        if options.kubeconfig:
            server.kubeconfig(options.kubeconfig)
        if options.url_file:
            write_whole(options.url_file, server.url + "\n")
        print(server.url, flush=True)
        await stop.wait()


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    if options.die_with_parent:
        die_with_parent(os.getppid(), signal.SIGTERM)
    asyncio.run(serve(options))


def write_whole(path: Path, text: str) -> None:
    """Write a file that readers see complete or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text)
    beside.replace(path)
