"""An API server that has service accounts and their tokens, and nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
from aiohttp import web

from ccm.kube.client import Kube
from ccm.kube.service_accounts import NAMESPACE
from tests.unit.api_server import failure, json_answer, serving

COLLECTION = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"


class Accounts:
    """Knows the accounts in `uids`, and takes the tokens of those that were not made anew since.

    `lifetime` is the most that it lets a token live; `troubles` are answered first.
    """

    def __init__(self) -> None:
        self.uids: dict[str, int] = {}
        self.lifetime = 3600
        self.troubles: list[int] = []
        self.may_make = True
        self.issued = 0
        self.askers: list[str] = []  # Authorization of requests for anything but tokens

    def make(self, name: str) -> None:
        self.uids[name] = self.uids.get(name, 0) + 1

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if not request.path.startswith(COLLECTION):
            return await self._serve(request)
        if self.troubles:
            return await failure(self.troubles.pop(0), "Trouble")(request)
        _, _, name = request.path.removesuffix("/token").removeprefix(COLLECTION).rpartition("/")
        if not name:
            return await self._make(request)
        if name not in self.uids:
            return await failure(404, "NotFound")(request)
        spec = orjson.loads(await request.read())["spec"]
        self.issued += 1
        token = f"{name}/{self.uids[name]}/{self.issued}"
        seconds = min(spec["expirationSeconds"], self.lifetime)
        body = {"spec": {"expirationSeconds": seconds}, "status": {"token": token}}
        return await json_answer(body)(request)

    async def _make(self, request: web.Request) -> web.StreamResponse:
        if not self.may_make:
            return await failure(403, "Forbidden", "cannot create serviceaccounts")(request)
        self.make(orjson.loads(await request.read())["metadata"]["name"])
        return await json_answer({})(request)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        asker = request.headers.get("Authorization", "")
        self.askers.append(asker)
        name, _, rest = asker.removeprefix("Bearer ").partition("/")
        is_known = rest.partition("/")[0] == str(self.uids.get(name))
        return await (json_answer({}) if is_known else failure(401, "Unauthorized"))(request)


@asynccontextmanager
async def accounts(*names: str) -> AsyncIterator[tuple[Accounts, Kube]]:
    """Such a server with these accounts, and a client of it."""
    known = Accounts()
    for name in names:
        known.make(name)
    async with serving(known.answer) as (_, kube):
        yield known, kube
