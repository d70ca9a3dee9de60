"""Tokens of the workers' accounts: requested, handed over, renewed, and never shown."""

import asyncio
import errno
import math
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest
from aiohttp import web

from ccm.bus.frames import UseToken, decode, encode
from ccm.errors import KubernetesError, Unreachable
from ccm.kube.client import Kube, RestConfig, WorkerToken
from ccm.kube.service_accounts import (
    ACCOUNTS,
    BUILT_IN,
    NAMESPACE,
    ServiceAccount,
    Token,
    request_token,
)
from ccm.supervisor.tokens import (
    MIN_RENEW_INTERVAL,
    RENEW_FRACTION,
    ServiceAccountTokens,
    SharedToken,
    TokenFiles,
)
from ccm.tls import Server
from tests.support.deadlines import timeout
from tests.support.waiting import until
from tests.unit.api_server import failure, json_answer, serving

COLLECTION = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"


class Accounts:
    """Knows the accounts in `uids`, and takes the tokens of those that were not recreated since.

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
        body = {
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"expirationSeconds": seconds},
            "status": {"token": token},
        }
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


NODE, ROUTE = ACCOUNTS["node"], ACCOUNTS["route"]
STATUS = f"{NAMESPACE}/{NODE}"


class HandedOver:
    """What was handed over to the workers of each controller, in order, while there is room."""

    def __init__(self) -> None:
        self.tokens: list[tuple[str, str]] = []
        self.is_full = False

    def take(self, controller: str, bearer: str) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.tokens.append((controller, bearer))


@asynccontextmanager
async def kept(
    kube: Kube, *controllers: str, min_renew_interval: float = MIN_RENEW_INTERVAL
) -> AsyncIterator[tuple[ServiceAccountTokens, HandedOver]]:
    """Tokens that are kept fresh."""
    given = HandedOver()
    acting = {each: ServiceAccount(ACCOUNTS[each]) for each in controllers}
    own = ServiceAccountTokens(kube, given.take, acting, min_renew_interval)
    await own.start(controllers)
    running = asyncio.create_task(own.run())
    try:
        yield own, given
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_an_account_is_created_only_where_the_api_server_gives_it_its_rights() -> None:
    async with accounts() as (known, kube):
        assert (await request_token(kube, ServiceAccount(BUILT_IN["node"]))).bearer
        with pytest.raises(KubernetesError):
            await request_token(kube, ServiceAccount(NODE))
        assert known.uids == {BUILT_IN["node"]: 1}


async def test_an_api_server_in_trouble_is_asked_again() -> None:
    async with accounts(NODE) as (known, kube):
        known.troubles = [500, 500]
        async with kept(kube, "node") as (own, given):
            assert own.token("node") is None
            await until(lambda: given.tokens == [("node", f"{NODE}/1/1")])
            assert own.status(time.monotonic())[STATUS]["last_error"] == ""


async def test_a_token_is_renewed_before_it_expires_and_handed_over() -> None:
    async with accounts(NODE) as (known, kube):
        known.lifetime, began = math.ceil(timeout(1.0)), time.monotonic()
        async with kept(kube, "node") as (own, given):
            await until(lambda: len(given.tokens) == 2)
            seconds = time.monotonic() - began
            assert RENEW_FRACTION * known.lifetime <= seconds < known.lifetime
            assert given.tokens[-1] == ("node", own.token("node")) == ("node", f"{NODE}/1/2")


async def test_a_token_that_cannot_be_renewed_stays_and_the_error_is_visible() -> None:
    async with accounts(NODE) as (known, kube):
        known.lifetime = 1
        async with kept(kube, "node") as (own, _):
            known.troubles = [403] * 100
            first = own.token("node")
            await until(lambda: own.status(time.monotonic())[STATUS]["last_error"])
            assert own.token("node") == first
            known.troubles = []
            await until(lambda: own.token("node") != first)


async def test_a_token_that_cannot_be_handed_over_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with accounts(NODE) as (known, kube):
        known.lifetime = 1
        async with kept(kube, "node") as (own, given):
            given.is_full = True
            await until(lambda: "No space" in own.status(time.monotonic())[STATUS]["last_error"])
            await until(lambda: known.issued >= 3)
            assert own.token("node") == f"{NODE}/1/1"
            assert caplog.messages.count("no new token") == 1
            given.is_full = False
            await until(lambda: len(given.tokens) == 2)
            assert given.tokens[-1] == ("node", own.token("node"))
            assert own.status(time.monotonic())[STATUS]["last_error"] == ""


async def test_a_refused_token_is_replaced_but_not_in_a_storm() -> None:
    """As when the account was deleted and recreated: what it had is worth nothing now."""
    began = time.monotonic()
    async with (
        accounts(NODE, ROUTE) as (known, kube),
        kept(kube, "node", "route", min_renew_interval=0.3) as (own, given),
    ):
        known.make(NODE)
        own.on_refused("node")
        await until(lambda: len(given.tokens) == 3)
        assert time.monotonic() - began >= 0.3
        assert (own.token("node") or "").startswith(f"{NODE}/2/")


async def test_a_refused_token_is_replaced_also_where_the_first_try_fails() -> None:
    """As while the account is deleted and yet to be recreated; its worker complains only once."""
    async with (
        accounts(NODE) as (known, kube),
        kept(kube, "node", min_renew_interval=0.01) as (own, given),
    ):
        known.make(NODE)
        known.troubles = [404]
        own.on_refused("node")
        await until(lambda: len(given.tokens) == 2)
        assert (own.token("node") or "").startswith(f"{NODE}/2/")


@asynccontextmanager
async def worker(supervisor: Kube) -> AsyncIterator[tuple[WorkerToken, Kube, list[str]]]:
    """A worker's held, its client, and its complaints."""
    complaints: list[str] = []
    held = WorkerToken(lambda: complaints.append("refused"))
    kube = Kube(RestConfig(supervisor.config.server, held.bearer), "worker")
    kube.on_unauthorized = held.refused
    yield held, kube, complaints
    await kube.close()


async def test_without_its_token_a_worker_sends_no_request() -> None:
    async with accounts(NODE) as (known, kube), worker(kube) as (held, own, _):
        with pytest.raises(Unreachable):
            await own.request("GET", "/api/v1/nodes", timeout=0.05)
        assert known.askers == []
        asking = asyncio.create_task(own.get("/api/v1/nodes"))
        held.set(f"{NODE}/1/1")
        await asking
        assert known.askers == [f"Bearer {NODE}/1/1"]


async def test_a_worker_complains_once_of_each_token_that_is_refused() -> None:
    async with accounts(NODE) as (known, kube), worker(kube) as (held, own, complaints):
        held.set(f"{NODE}/1/1")
        known.make(NODE)
        await refused(own, times=3)
        assert complaints == ["refused"]
        held.set(f"{NODE}/1/2")
        await refused(own, times=3)
        assert complaints == ["refused"] * 2
        held.set(f"{NODE}/2/3")
        await own.get("/api/v1/nodes")


async def refused(kube: Kube, times: int) -> None:
    for _ in range(times):
        with pytest.raises(KubernetesError) as error:
            await kube.get("/api/v1/nodes")
        assert error.value.status == 401


async def test_without_service_accounts_every_worker_has_the_token_of_the_supervisor(
    caplog: pytest.LogCaptureFixture,
) -> None:
    read, given = ["first"], HandedOver()

    async def token() -> str:
        return read[-1]

    own = SharedToken(RestConfig(Server("https://127.0.0.1:1"), token), given.take, 0.01)
    await own.start(["node", "route"])
    assert own.token("node") == own.token("route") == "first"
    given.is_full = True
    running = asyncio.create_task(own.run())
    read.append("second")
    await until(lambda: "changed token not handed over" in caplog.messages)
    assert own.token("route") == "first"
    given.is_full = False
    await until(lambda: given.tokens == [("node", "second"), ("route", "second")])
    assert own.token("route") == "second"
    assert caplog.messages.count("changed token not handed over") == 1
    running.cancel()


def test_who_shows_a_token_of_its_own_does_not_show_the_supervisors_certificate() -> None:
    server = Server("https://127.0.0.1:1", ca_file="ca.crt", cert_file="us.crt", key_file="us.key")
    assert server.without_certificate() == Server("https://127.0.0.1:1", ca_file="ca.crt")


async def test_who_has_a_certificate_needs_no_token() -> None:
    own = SharedToken(
        RestConfig(Server("https://127.0.0.1:1", cert_file="ours.crt")), HandedOver().take
    )
    await own.start(["node"])
    assert own.token("node") == ""
    async with accounts(NODE) as (known, kube), worker(kube) as (held, client, _):
        held.set("")
        await refused(client, times=1)  # by this server, which knows no certificates
        assert known.askers == [""]


def test_a_token_travels_in_a_file_that_no_one_else_reads(tmp_path: Path) -> None:
    files = TokenFiles(tmp_path)
    for bearer in ("canary-1", "canary-2"):
        message = decode(encode(UseToken(files.write("node", bearer))))
        assert isinstance(message, UseToken)
        assert Path(message.file).read_text() == bearer
        assert Path(message.file).stat().st_mode & 0o777 == 0o600
        assert bearer not in repr(message)
    assert len(list(tmp_path.iterdir())) == 1
    files.remove()
    assert not list(tmp_path.iterdir())
    assert "canary" not in repr(Token("canary", 1.0))


def test_all_accounts_are_of_workers_and_none_is_of_kube_controller_manager() -> None:
    assert "node-controller" not in ACCOUNTS.values()
    assert len({*ACCOUNTS.values()}) == len(ACCOUNTS)
