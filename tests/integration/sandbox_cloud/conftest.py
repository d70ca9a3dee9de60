"""A simulated cloud in this process that can be called, and its admin."""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple, Self

import aiohttp
import orjson
import pytest

from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.cloud.server import CloudServer
from ccm.sandbox.cloud.service import TOKEN


class Reply(NamedTuple):
    """What came back."""

    status: int
    body: Any
    headers: dict[str, str]

    @property
    def names(self) -> list[str]:
        return [item["name"] for item in self.body["items"]]

    @property
    def code(self) -> str:
        return str(self.body["error"]["code"])


class Cloud(CloudServer):
    """A cloud that is also its own caller: one request at a time, the whole answer."""

    async def __aenter__(self) -> Self:
        self.session = aiohttp.ClientSession()
        self.session._retry_connection = False
        return await super().__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()
        await super().__aexit__()

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        token: str = TOKEN,
        caller: str = "test",
    ) -> Reply:
        headers = {"Authorization": f"Bearer {token}", "X-Caller": caller}
        data = body if isinstance(body, bytes | None) else orjson.dumps(body)
        async with self.session.request(
            method, self.url + path, data=data, headers=headers
        ) as response:
            content = await response.read()
        parsed = orjson.loads(content) if content else None
        return Reply(response.status, parsed, dict(response.headers))

    async def get(self, path: str, token: str = TOKEN, caller: str = "test") -> Reply:
        return await self.ask("GET", path, token=token, caller=caller)

    async def post(self, path: str, body: object) -> Reply:
        return await self.ask("POST", path, body)


@pytest.fixture
async def cloud() -> AsyncIterator[Cloud]:
    async with Cloud(page=10) as server:
        yield server


@pytest.fixture
async def admin(cloud: Cloud) -> AsyncIterator[CloudAdmin]:
    async with CloudAdmin(cloud.url) as client:
        yield client
