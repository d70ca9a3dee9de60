"""The two servers of a sandbox as processes: each reports its address, and stops on request."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from ccm.directories import replace_file


class ListensAtUrl(Protocol):
    """A server that listens, at `url`, while its context is open."""

    @property
    def url(self) -> str: ...

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *exception: object) -> None: ...


async def serve(
    server: ListensAtUrl, url_file: Path | None, on_ready: Callable[[], object] = lambda: None
) -> None:
    """Listen, say where, and wait for SIGTERM or SIGINT."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with server:
        on_ready()
        if url_file:
            replace_file(url_file, server.url.encode())
        print(server.url, flush=True)
        await stopping.wait()
