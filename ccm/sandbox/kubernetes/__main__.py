"""The embedded Kubernetes API server as a process: `python -m ccm.sandbox.kubernetes`."""

import argparse
import asyncio
import os
import signal
from pathlib import Path

from ccm.processes import die_with_parent
from ccm.sandbox.kubernetes.server import SandboxServer, write_atomically


def main() -> None:
    """Run the server until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(
        prog="python -m ccm.sandbox.kubernetes",
        description="An embedded Kubernetes API server on loopback.",
    )
    add = parser.add_argument
    add("--port", type=int, default=0, help="0 lets the system choose")
    add("--url-file", type=Path, help="written when the server is ready")
    add("--kubeconfig", type=Path, help="written when the server is ready")
    add("--die-with-parent", action="store_true")
    options = parser.parse_args()
    if options.die_with_parent:
        die_with_parent(os.getppid(), signal.SIGTERM)
    asyncio.run(serve(options))


async def serve(options: argparse.Namespace) -> None:
    """Listen, say where, and wait for a signal."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with SandboxServer(port=options.port) as server:
        if options.kubeconfig:
            server.kubeconfig(options.kubeconfig)
        if options.url_file:
            write_atomically(options.url_file, f"{server.url}\n".encode())
        print(server.url, flush=True)
        await stop.wait()


if __name__ == "__main__":
    main()
