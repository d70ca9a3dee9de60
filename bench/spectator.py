"""A watch that notes when each node's taint goes, at the least cost for the API server."""

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ccm.http import HttpConnection
from ccm.kube.client import Kube
from ccm.model.objects import UNINITIALIZED_TAINT

TAINT = UNINITIALIZED_TAINT.encode()
VERSION = re.compile(rb'"resourceVersion":"([0-9]+)"')
NAME = re.compile(rb'"name":"([^"]+)"')
PATIENCE = 900.0  # seconds; longer than the slowest scenario should take


@dataclass
class Spectator:
    """Follows all Nodes from now on and reads no more of them than the name and the taint.

    Both sides of a comparison are timed by the same bystander, on the same watch.
    """

    kube: Kube
    came: dict[str, float] = field(default_factory=dict)  # when first seen
    ready: dict[str, float] = field(default_factory=dict)  # when first seen without the taint
    there: set[str] = field(default_factory=set)
    events: int = 0
    _version: str = ""
    _moved: asyncio.Event = field(default_factory=asyncio.Event)
    _opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Until cancelled; the API server ends the watch of a reader that was slow for a moment."""
        answer = await self.kube.get("/api/v1/nodes", {"limit": "1"})
        self._version = answer["metadata"]["resourceVersion"]
        while True:
            params = {"watch": "true", "resourceVersion": self._version, "timeoutSeconds": "3600"}
            async with self.kube.stream("/api/v1/nodes", params, PATIENCE) as content:
                self._opened.set()
                await self._follow(content)

    async def _follow(self, content: HttpConnection) -> None:
        rest = b""
        while chunk := await content.read():
            *lines, rest = (rest + chunk).split(b"\n")
            now = time.monotonic()
            for line in filter(None, lines):
                self._see(line, now)
            self._moved.set()

    async def opened(self) -> None:
        await self._opened.wait()

    async def until_gone(self) -> None:
        """Until every node was seen to go; then begin again."""
        await self._until(lambda: not self.there)
        self.came.clear()
        self.ready.clear()
        self.events = 0

    async def until_ready(self, count: int, seconds: float = PATIENCE) -> float:
        """When the last of `count` nodes lost its taint (monotonic)."""
        await self._until(lambda: len(self.ready) >= count, seconds)
        return max(self.ready.values())

    async def _until(self, is_so: Callable[[], bool], seconds: float = PATIENCE) -> None:
        async with asyncio.timeout(seconds):
            while not is_so():
                self._moved.clear()
                await self._moved.wait()

    def _see(self, line: bytes, now: float) -> None:
        self.events += 1
        name_found, version_found = NAME.search(line), VERSION.search(line)
        if not (name_found and version_found):
            raise AssertionError(f"not an event about a node: {line[:200]!r}")
        self._version, name = version_found.group(1).decode(), name_found.group(1).decode()
        if line.startswith(b'{"type":"DELETED"'):
            self.there.discard(name)
            return
        self.there.add(name)
        self.came.setdefault(name, now)
        if TAINT not in line:
            self.ready.setdefault(name, now)
