"""Users by client certificate, and by the word of a proxy that has one."""

import datetime
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.https.pki import NOW, Authority, Signed
from tests.https.reviewer import Reviewer
from tests.https.served import Answer, Site, eventually, serving
from tests.unit.waiting import until

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


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """The flags for both CAs."""
    (tmp_path / "clients.crt").write_bytes(CLIENTS.pem)
    (tmp_path / "proxies.crt").write_bytes(PROXIES.pem)
    return {
        "client_ca_file": str(tmp_path / "clients.crt"),
        "requestheader_client_ca_file": str(tmp_path / "proxies.crt"),
    }


async def asked_for(reviewer: Reviewer, site: Site, client: ssl.SSLContext, **how: Any) -> Any:
    """Who the server says that this client is; None when it turns him away."""
    reviewer.specs.clear()
    answer = await site.get("/page", tls=client, **how)
    if answer.status == 401:
        return None
    (spec,) = reviewer.specs
    return spec["user"], spec["groups"]


async def test_the_common_name_is_the_user_and_organizations_are_groups(
    reviewer: Reviewer, tmp_path: Path, files: dict[str, str]
) -> None:
    alice = CLIENTS.client("alice", "dev", "ops").present(tmp_path)
    async with serving(reviewer, **files) as site:
        assert await asked_for(reviewer, site, alice) == (
            "alice",
            ["dev", "ops", "system:authenticated"],
        )
    assert reviewer.asked["ConfigMap"] == 0, "both CAs are in files"


async def test_a_master_by_certificate_needs_no_api_server(
    reviewer: Reviewer, tmp_path: Path, files: dict[str, str]
) -> None:
    reviewer.url = "http://127.0.0.1:1"
    admin = CLIENTS.client("admin", "system:masters").present(tmp_path)
    async with serving(reviewer, **files) as site:
        assert (await site.get("/page", tls=admin)).status == 200


@pytest.mark.parametrize(
    "stranger",
    [
        pytest.param(Authority("strangers").client("alice", "system:masters"), id="another-CA"),
        pytest.param(Authority("clients").client("alice", "system:masters"), id="same-name-of-CA"),
        pytest.param(CLIENTS.client("alice", purpose="server"), id="for-servers"),
        pytest.param(CLIENTS.client("alice", ends_in=-datetime.timedelta(hours=1)), id="expired"),
    ],
)
async def test_a_certificate_that_is_not_good_makes_no_connection(
    reviewer: Reviewer, tmp_path: Path, files: dict[str, str], stranger: Signed
) -> None:
    async with serving(reviewer, **files) as site:
        with pytest.raises(aiohttp.ClientError):
            await site.get("/healthz", tls=stranger.present(tmp_path))
        assert (await site.get("/healthz")).status == 200


async def test_a_certificate_without_a_name_is_nobody_but_a_token_still_counts(
    reviewer: Reviewer, tmp_path: Path, files: dict[str, str]
) -> None:
    reviewer.know("good", "carol")
    nameless = CLIENTS.client("", "system:masters").present(tmp_path)
    async with serving(reviewer, **files) as site:
        assert await asked_for(reviewer, site, nameless) is None
        await site.get("/page", tls=nameless, token="good")
    assert reviewer.specs[-1]["user"] == "carol"


async def test_a_proxy_names_its_client(
    reviewer: Reviewer, tmp_path: Path, files: dict[str, str]
) -> None:
    flags = {**files, "requestheader_uid_headers": ("X-Remote-Uid",)}
    async with serving(reviewer, **flags) as site:
        await site.get("/page", tls=PROXY.present(tmp_path), headers=BOB)
    assert reviewer.specs[0] == {
        "user": "bob",
        "uid": "1234",
        "groups": ["dev", "ops", "system:authenticated"],
        "extra": {"scopes": ["a", "b"], "acme.com/team": ["red"]},
        "nonResourceAttributes": {"path": "/page", "verb": "get"},
    }


async def test_a_proxy_that_names_nobody_is_nobody(
    reviewer: Reviewer, tmp_path: Path, files: dict[str, str]
) -> None:
    async with serving(reviewer, **files) as site:
        assert await asked_for(reviewer, site, PROXY.present(tmp_path)) is None


@pytest.mark.parametrize(
    ("names", "is_trusted"), [(("front-proxy-client",), True), (("x",), False)]
)
async def test_only_proxies_with_an_allowed_name_are_believed(
    reviewer: Reviewer,
    tmp_path: Path,
    files: dict[str, str],
    names: tuple[str, ...],
    is_trusted: bool,
) -> None:
    flags = {**files, "requestheader_allowed_names": names}
    async with serving(reviewer, **flags) as site:
        user = await asked_for(reviewer, site, PROXY.present(tmp_path), headers=BOB)
    assert bool(user) is is_trusted


async def test_a_client_cannot_name_somebody_else(
    reviewer: Reviewer, tmp_path: Path, files: dict[str, str]
) -> None:
    alice = CLIENTS.client("alice").present(tmp_path)
    async with serving(reviewer, **files) as site:
        assert await asked_for(reviewer, site, alice, headers=BOB) == (
            "alice",
            ["system:authenticated"],
        )
        answer = await site.get("/page", headers=BOB)
    assert "system:anonymous" in answer.text, "headers without a certificate are worth nothing"


async def test_a_proxys_certificate_is_not_one_of_a_client(
    reviewer: Reviewer, tmp_path: Path, files: dict[str, str]
) -> None:
    liar = PROXIES.client("admin", "system:masters").present(tmp_path)
    async with serving(reviewer, **files) as site:
        assert (await site.get("/page", tls=liar)).status == 401


async def test_the_cluster_says_which_cas_count_when_no_file_does(
    reviewer: Reviewer, tmp_path: Path
) -> None:
    reviewer.trust(CLIENTS.pem, PROXIES.pem, "front-proxy-client")
    reviewer.allow("alice", "/page")
    reviewer.allow("bob", "/page")
    alice, proxy = CLIENTS.client("alice").present(tmp_path), PROXY.present(tmp_path)
    async with serving(reviewer) as site:
        await eventually(lambda: site.get("/page", tls=alice), lambda answer: answer.status == 200)
        assert (await site.get("/page", tls=proxy, headers=BOB)).status == 200
        assert (await site.get("/page", tls=proxy)).status == 401


async def test_the_cluster_is_not_asked_when_the_flag_says_so(
    reviewer: Reviewer, tmp_path: Path
) -> None:
    reviewer.trust(CLIENTS.pem)
    async with serving(reviewer, authentication_skip_lookup=True) as site:
        answer = await site.get("/page", tls=CLIENTS.client("alice").present(tmp_path))
    assert "system:anonymous" in answer.text
    assert not reviewer.asked["ConfigMap"]


async def test_what_the_cluster_says_is_asked_for_again(
    reviewer: Reviewer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm.supervisor.https.trust.LOOK_UP_EVERY", 0.02)
    reviewer.trust(Authority("old").pem)
    reviewer.allow("alice", "/page")
    alice = CLIENTS.client("alice").present(tmp_path)

    async with serving(reviewer) as site:

        async def look() -> Answer | None:
            try:
                return await site.get("/page", tls=alice)
            except aiohttp.ClientError:
                return None  # not signed by the old CA

        await eventually(look, lambda answer: answer is None)
        reviewer.trust(CLIENTS.pem)
        await eventually(look, lambda answer: bool(answer and answer.status == 200))


@pytest.mark.parametrize(
    "config",
    [
        {"client-ca-file": "not a certificate"},
        {"requestheader-allowed-names": "{"},
        {"requestheader-allowed-names": '"x"'},
    ],
)
async def test_nonsense_from_the_cluster_changes_nothing(
    reviewer: Reviewer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("ccm.supervisor.https.trust.LOOK_UP_EVERY", 0.02)
    reviewer.trust(CLIENTS.pem)
    reviewer.allow("alice", "/page")
    alice = CLIENTS.client("alice").present(tmp_path)
    async with serving(reviewer) as site:
        await eventually(lambda: site.get("/page", tls=alice), lambda answer: answer.status == 200)
        reviewer.config = config
        await until(lambda: "client CAs not read" in caplog.text)
        assert (await site.get("/page", tls=alice)).status == 200


async def test_a_ca_file_that_changes_counts_at_once_also_for_open_connections(
    reviewer: Reviewer, tmp_path: Path, files: dict[str, str]
) -> None:
    alice = CLIENTS.client("alice", "system:masters").present(tmp_path)
    async with serving(reviewer, **files) as site:
        connector = aiohttp.TCPConnector(ssl=alice)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def look() -> int:
                async with session.get(f"https://127.0.0.1:{site.port}/page") as answer:
                    return answer.status

            assert await look() == 200
            Path(files["client_ca_file"]).write_bytes(Authority("clients").pem)
            await eventually(look, lambda status: status == 401)


async def test_a_certificate_that_ends_while_its_connection_is_open_counts_no_more(
    reviewer: Reviewer, tmp_path: Path, files: dict[str, str]
) -> None:
    soon = datetime.datetime.now(datetime.UTC) - NOW + datetime.timedelta(seconds=2)
    alice = CLIENTS.client("alice", "system:masters", ends_in=soon).present(tmp_path)
    async with serving(reviewer, **files) as site:
        connector = aiohttp.TCPConnector(ssl=alice)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def look() -> int:
                async with session.get(f"https://127.0.0.1:{site.port}/page") as answer:
                    return answer.status

            assert await look() == 200
            await eventually(look, lambda status: status == 401)
