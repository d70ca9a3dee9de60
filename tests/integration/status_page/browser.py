"""A headless Chromium, told what to do over its DevTools protocol."""

import asyncio
import os
import shutil
import signal
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.deadlines import timeout, within
from tests.support.kube.child import Nursery
from tests.support.needed import needed

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = "no Chromium to read the page with: apt-get install chromium"
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # the tests may run as root, and show it only our own pages
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--disable-lcd-text",  # coloured edges make pictures large
    "--remote-debugging-port=0",
)

Json = dict[str, Any]


@pytest.fixture(scope="session")
def chromium() -> str:
    """Its path; without it a skip on a laptop and a failure in CI."""
    return needed(find(), MISSING)


def find() -> str:
    return next(filter(None, map(shutil.which, NAMES)), "")


@dataclass
class Tab:
    """One page of the browser."""

    socket: aiohttp.ClientWebSocketResponse
    session: str = ""
    events: list[Json] = field(default_factory=list)
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    async def call(self, method: str, **parameters: Any) -> Json:
        """What the browser answers; what it tells meanwhile goes to `events`."""
        number = next(self._numbers)
        to = {"sessionId": self.session} if self.session else {}
        await self.socket.send_json({"id": number, "method": method, "params": parameters, **to})
        while (message := await self._hear()).get("id") != number:
            self.events.append(message)
        assert "error" not in message, f"{method}: {message['error']}"
        answer: Json = message["result"]
        return answer

    async def happens(self, event: str) -> Json:
        """Until the browser tells of this, from now on."""
        while (message := await self._hear()).get("method") != event:
            self.events.append(message)
        self.events.append(message)
        return message

    async def show(self, url: str) -> None:
        """Load a page, and all that it needs."""
        await self.call("Page.navigate", url=url)
        await self.happens("Page.loadEventFired")

    async def source(self) -> str:
        """The document as the browser understood it."""
        root = (await self.call("DOM.getDocument"))["root"]["nodeId"]
        html: str = (await self.call("DOM.getOuterHTML", nodeId=root))["outerHTML"]
        return html

    async def run(self, script: str) -> Any:
        """What a script finds that we, and not the page, put there."""
        found = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return found["result"].get("value")

    async def resize(self, width: int, height: int = 600, scale: float = 1.0) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **size)

    async def theme(self, name: str) -> None:
        """Light or dark, as the system of a person says."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def picture(self, file: Path) -> None:
        """A picture of what the window shows."""
        shot = await self.call("Page.captureScreenshot")
        file.write_bytes(b64decode(shot["data"]))

    def complaints(self) -> list[str]:
        """What the browser wrote to its console."""
        entries = (it["params"]["entry"] for it in self.events if it["method"] == "Log.entryAdded")
        return [entry["text"] for entry in entries]

    async def _hear(self) -> Json:
        message: Json = await self.socket.receive_json(timeout=timeout())
        return message


@asynccontextmanager
async def opened(chromium: str, directory: Path, scripts: bool = False) -> AsyncIterator[Tab]:
    """A browser with an empty page, in which scripts run or do not; it believes any server."""
    nursery = Nursery()
    profile = directory / "chromium"
    profile.mkdir()
    child = nursery.start("chromium", (chromium, *FLAGS, f"--user-data-dir={profile}"), directory)
    try:
        address = await _address(profile / "DevToolsActivePort")
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(address, max_msg_size=64 << 20) as socket,
        ):
            tab = Tab(socket)
            target = (await tab.call("Target.createTarget", url="about:blank"))["targetId"]
            attached = await tab.call("Target.attachToTarget", targetId=target, flatten=True)
            tab.session = attached["sessionId"]
            for part in ("Page", "Log", "Network"):
                await tab.call(f"{part}.enable")
            await tab.call("Security.setIgnoreCertificateErrors", ignore=True)
            await tab.call("Emulation.setScriptExecutionDisabled", value=not scripts)
            yield tab
    finally:
        nursery.close()
        _end_all(child.pid)


async def _address(file: Path) -> str:
    """Where the browser listens, once it does."""
    async with within():
        while not (file.exists() and len(lines := file.read_text().splitlines()) == 2):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return f"ws://127.0.0.1:{lines[0]}{lines[1]}"


def _end_all(group: int) -> None:
    """What the browser started and has not ended with it yet."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
