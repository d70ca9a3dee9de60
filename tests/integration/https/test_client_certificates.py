"""Users by client certificate, and by the headers of a front proxy that has one."""

import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.integration.https.review_api import ReviewApi
from tests.integration.https.served import QUICK, LocalServer, eventually, serving
from tests.support.deadlines import timeout
from tests.support.pki import NOW, Authority, Signed
from tests.support.waiting import until

CLIENTS, PROXIES = Authority("clients"), Authority("proxies")
PROXY = PROXIES.client("front-proxy-client")
BOB = (
    ("X-Remote-User", "bob"),
    ("X-Remote-Group", "dev"),
    ("X-Remote-Group", "ops"),
    ("X-Remote-Extra-Scopes", "a"),
    ("X-Remote-Extra-Scopes", "b"),
    ("X-Remote-Extra-Acme.com%2fteam", "red"),
    ("X-Remote-Uid", "1234"),
)


@dataclass
class World:
    """An API server, and a directory with files of both CAs: `flags` name them."""

    reviews: ReviewApi
    directory: Path
    flags: dict[str, Any]

    def serving(self, **flags: Any) -> AbstractAsyncContextManager[LocalServer]:
        return serving(self.reviews, **self.flags, **flags)

    def present(self, signed: Signed) -> ssl.SSLContext:
        return signed.present(self.directory)

    async def user(self, server: LocalServer, client: Signed, **how: Any) -> Any:
        """Name and groups of the user that the server reviews for this client; None for a 401."""
        self.reviews.specs.clear()
        if (await server.get("/page", tls=self.present(client), **how)).status == 401:
            return None
        (spec,) = self.reviews.specs
        return spec["user"], spec["groups"]


@pytest.fixture
def world(reviews: ReviewApi, tmp_path: Path) -> World:
    (tmp_path / "clients.crt").write_bytes(CLIENTS.pem)
    (tmp_path / "proxies.crt").write_bytes(PROXIES.pem)
    flags = {
        "client_ca_file": str(tmp_path / "clients.crt"),
        "requestheader_client_ca_file": str(tmp_path / "proxies.crt"),
    }
    return World(reviews, tmp_path, flags)


async def test_the_common_name_is_the_user_and_organizations_are_groups(world: World) -> None:
    alice = CLIENTS.client("alice", "dev", "ops")
    async with world.serving() as server:
        user = await world.user(server, alice)
    assert user == ("alice", ["dev", "ops", "system:authenticated"])
    assert world.reviews.counts["ConfigMap"] == 0, "both CAs are in files"


async def test_a_master_by_certificate_needs_no_api_server(world: World) -> None:
    world.reviews.url = "http://127.0.0.1:1"
    admin = world.present(CLIENTS.client("admin", "system:masters"))
    async with world.serving() as server:
        assert (await server.get("/page", tls=admin)).status == 200


@pytest.mark.parametrize(
    "stranger",
    [
        pytest.param(Authority("strangers").client("alice", "system:masters"), id="another-CA"),
        pytest.param(Authority("clients").client("alice", "system:masters"), id="same-name-of-CA"),
        pytest.param(CLIENTS.client("alice", purpose="server"), id="for-servers"),
        pytest.param(CLIENTS.client("alice", ends_in=-datetime.timedelta(hours=1)), id="expired"),
    ],
)
async def test_the_handshake_refuses_an_invalid_certificate(world: World, stranger: Signed) -> None:
    async with world.serving() as server:
        with pytest.raises(aiohttp.ClientError):
            await server.get("/healthz", tls=world.present(stranger))
        assert (await server.get("/healthz")).status == 200


async def test_a_certificate_without_a_name_is_invalid_but_a_token_still_counts(
    world: World,
) -> None:
    world.reviews.add_token("good", "carol")
    nameless = CLIENTS.client("", "system:masters")
    async with world.serving() as server:
        assert await world.user(server, nameless) is None
        await server.get("/page", tls=world.present(nameless), token="good")
    assert world.reviews.specs[-1]["user"] == "carol"


async def test_a_proxy_names_its_client(world: World) -> None:
    async with world.serving(requestheader_uid_headers=("X-Remote-Uid",)) as server:
        await server.get("/page", tls=world.present(PROXY), headers=BOB)
    assert world.reviews.specs[0] == {
        "user": "bob",
        "uid": "1234",
        "groups": ["dev", "ops", "system:authenticated"],
        "extra": {"scopes": ["a", "b"], "acme.com/team": ["red"]},
        "nonResourceAttributes": {"path": "/page", "verb": "get"},
    }


LIAR = PROXIES.client("admin", "system:masters")


@pytest.mark.parametrize(
    ("client", "headers", "names", "is_authenticated"),
    [
        pytest.param(PROXY, BOB, ("front-proxy-client",), True, id="allowed-name"),
        pytest.param(PROXY, BOB, ("x",), False, id="another-name"),
        pytest.param(PROXY, (), (), False, id="proxy-that-names-nobody"),
        pytest.param(LIAR, (), (), False, id="proxy-as-a-client"),
    ],
)
async def test_a_proxy_is_trusted_by_name_and_for_its_headers_only(
    world: World, client: Signed, headers: Any, names: tuple[str, ...], is_authenticated: bool
) -> None:
    async with world.serving(requestheader_allowed_names=names) as server:
        user = await world.user(server, client, headers=headers)
    assert bool(user) is is_authenticated


async def test_a_client_cannot_name_someone_else(world: World) -> None:
    async with world.serving() as server:
        user = await world.user(server, CLIENTS.client("alice"), headers=BOB)
        response = await server.get("/page", headers=BOB)
    assert user == ("alice", ["system:authenticated"])
    assert "system:anonymous" in response.text, "headers without a certificate are worth nothing"


async def test_the_config_map_is_not_read_when_the_flag_says_so(
    reviews: ReviewApi, tmp_path: Path
) -> None:
    reviews.publish_cas(CLIENTS.pem)
    async with serving(reviews, authentication_skip_lookup=True) as server:
        response = await server.get("/page", tls=CLIENTS.client("alice").present(tmp_path))
    assert "system:anonymous" in response.text
    assert not reviews.counts["ConfigMap"]


OFTEN = replace(QUICK, config_map_interval=0.02)


async def test_a_changed_config_map_counts(reviews: ReviewApi, tmp_path: Path) -> None:
    reviews.publish_cas(Authority("old").pem)
    reviews.allow("alice", "/page")
    alice = CLIENTS.client("alice").present(tmp_path)
    async with serving(reviews, OFTEN) as server:

        async def status() -> int | None:
            try:
                return (await server.get("/page", tls=alice)).status
            except aiohttp.ClientError:
                return None  # not signed by the old CA

        await eventually(status, lambda it: it is None)
        reviews.publish_cas(CLIENTS.pem)
        await eventually(status, lambda it: it == 200)


@pytest.mark.parametrize(
    "config",
    [
        {"client-ca-file": "not a certificate"},
        {"requestheader-allowed-names": "{"},
        {"requestheader-allowed-names": '"x"'},
        pytest.param({"requestheader-allowed-names": "[" * 100_000}, id="nested"),
    ],
)
async def test_an_invalid_config_map_changes_nothing(
    reviews: ReviewApi, tmp_path: Path, config: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async with unread_config_map(reviews, tmp_path, caplog):
        reviews.config = config


async def test_another_config_map_names_no_authority(
    reviews: ReviewApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A proxy before the API server may mix up answers, and tenants write ConfigMaps."""
    async with unread_config_map(reviews, tmp_path, caplog):
        reviews.meta = {"name": "a-tenants"}
        reviews.publish_cas(Authority("other").pem)


async def test_the_404_of_a_proxy_takes_no_client_its_authority(
    reviews: ReviewApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with unread_config_map(reviews, tmp_path, caplog):
        reviews.is_missing = True


@asynccontextmanager
async def unread_config_map(
    reviews: ReviewApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[None]:
    """What the block makes of the config map is not read, and a client of before is still one."""
    reviews.publish_cas(CLIENTS.pem)
    reviews.allow("alice", "/page")
    alice = CLIENTS.client("alice").present(tmp_path)
    async with serving(reviews, OFTEN) as server:
        await eventually(lambda: server.get("/page", tls=alice), lambda it: it.status == 200)
        yield
        await until(lambda: "client CAs not read" in caplog.text)
        assert (await server.get("/page", tls=alice)).status == 200


@pytest.mark.parametrize("is_removed", [True, False], ids=["CA-removed", "certificate-expires"])
async def test_an_open_connection_loses_access_with_its_certificate(
    world: World, is_removed: bool
) -> None:
    soon = datetime.datetime.now(datetime.UTC) - NOW + datetime.timedelta(seconds=timeout(1))
    lifetime = datetime.timedelta(hours=1) if is_removed else soon
    alice = world.present(CLIENTS.client("alice", "system:masters", ends_in=lifetime))
    async with (
        world.serving() as server,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=alice)) as session,
    ):

        async def status() -> int:
            async with session.get(f"https://127.0.0.1:{server.port}/page") as response:
                return response.status

        assert await status() == 200
        if is_removed:
            Path(world.flags["client_ca_file"]).write_bytes(Authority("clients").pem)
        await eventually(status, lambda it: it == 401)
