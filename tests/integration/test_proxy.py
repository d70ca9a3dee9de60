"""Requests by a real proxy: they go there, past it where NO_PROXY says so, and nothing is shown."""

import asyncio
import gc
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from ccm.cloud.testkit.gate import KitGate
from ccm.errors import CloudError, Unreachable
from ccm.http_client import HttpClient
from ccm.kube.client import Kube
from ccm.kube.config import load
from ccm.providers.digitalocean.api import DigitalOceanApi
from ccm.providers.digitalocean.config import GlobalSection
from ccm.providers.vsphere.config import VCenter
from ccm.providers.vsphere.connections import fetch_certificate
from ccm.proxy import VARIABLES, ProxyError
from ccm.tls import Server
from tests.support.pki import Authority
from tests.support.proxied import WORD, RunningProxy, running_proxy
from tests.support.waiting import until
from tests.unit.raw_http import HELLO, RawServer

NAME = "cloud.test"  # the environment's proxy is not for this machine's own names


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("an authority")


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningProxy]:
    with running_proxy(tmp_path_factory.mktemp("proxy"), "--basic-auth", f"us:{WORD}") as running:
        yield running


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", *(name for names in VARIABLES.values() for name in names)):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def server(authority: Authority, tmp_path: Path) -> AsyncIterator["TlsServer"]:
    async with listening(authority, tmp_path) as running:
        yield running


class TlsServer(RawServer):
    """A server of HTTPS by the name that the proxy knows."""

    port, ca_file = 0, ""

    @property
    def url(self) -> str:
        return f"https://{NAME}:{self.port}"


@asynccontextmanager
async def listening(authority: Authority, directory: Path) -> AsyncIterator[TlsServer]:
    server = TlsServer([HELLO], [HELLO])
    ca_file = directory / "ca.crt"
    ca_file.write_bytes(authority.pem)
    server.ca_file = str(ca_file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.server(NAME).write(directory, "server"))
    async with server.listening(context) as server.port:
        yield server


def by(proxy: RunningProxy, word: str = WORD) -> str:
    return proxy.address.replace("//", f"//us:{word}@")


async def test_tls_goes_through_a_tunnel_that_is_used_again(
    proxy: RunningProxy, server: TlsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", by(proxy))
    client = HttpClient(Server(server.url, server.ca_file))
    for _ in range(2):
        assert (await client.request("GET", "/v2/droplets", ())).body == b"hello"
    await client.close()
    assert server.connections == 1
    assert all(WORD.encode() not in one and b"Proxy-" not in one for one in server.requests)
    await proxy.until_asked(f"CONNECT {NAME}:{server.port}")


async def test_plain_http_is_asked_of_the_proxy(
    proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", by(proxy))
    server = RawServer([HELLO])
    async with server.listening() as port:
        client = HttpClient(Server(f"http://{NAME}:{port}/v1"))
        assert (await client.request("GET", "/machines", ())).body == b"hello"
        await client.close()
    assert server.requests[0].startswith(b"GET /v1/machines HTTP/1.1\r\n")
    await proxy.until_asked(f"GET {NAME}:{port}/v1/machines")


async def test_what_no_proxy_names_is_reached_without(
    server: TlsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", f"other.test,{NAME}:{server.port}")

    with pytest.raises(socket.gaierror):  # which the proxy knows, and DNS does not
        await HttpClient(Server(server.url, server.ca_file)).request("GET", "/", ())
    monkeypatch.setenv("NO_PROXY", "other.test")
    with pytest.raises(ProxyError):
        await HttpClient(Server(server.url, server.ca_file)).request("GET", "/", ())


async def test_a_refusal_names_the_proxy_and_shows_no_password(
    proxy: RunningProxy, server: TlsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", by(proxy, f"not-{WORD}"))
    section = GlobalSection(token="t", api_url=server.url, ca_file=server.ca_file)
    api = DigitalOceanApi(section, KitGate(10.0), "test")
    with pytest.raises(CloudError) as raised:
        await api.get("GetAccount", "/account")
    await api.close()
    where = f"proxy {proxy.address} does not connect to {NAME}:{server.port}: 407"
    assert where in str(raised.value)
    assert WORD not in str(raised.value)
    assert server.connections == 0


async def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://us:{WORD}@127.0.0.1:1")
    words = r"proxy http://127\.0\.0\.1:1: .*Connect call failed"
    with pytest.raises(ProxyError, match=words) as raised:
        await HttpClient(Server(f"https://{NAME}")).request("GET", "/", ())
    assert WORD not in str(raised.value)


async def test_a_proxy_may_be_spoken_to_by_tls(
    authority: Authority, server: TlsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS within TLS; who vouches for the proxy is the system's matter."""
    cert, key = authority.server("localhost").write(tmp_path, "proxy")
    monkeypatch.setenv("SSL_CERT_FILE", server.ca_file)
    flags = ("--cert-file", str(cert), "--key-file", str(key))
    with running_proxy(tmp_path, *flags) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"https://localhost:{proxy.port}")
        client = HttpClient(Server(server.url, server.ca_file))
        for _ in range(2):
            assert (await client.request("GET", "/", ())).body == b"hello"
            gc.collect()  # which takes nothing of a connection that waits
        await client.close()
    await until(lambda: len(asyncio.all_tasks()) == 1, "the end of the tunnel")


async def test_the_kubeconfigs_proxy_leads_to_the_api_server(
    proxy: RunningProxy, server: TlsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KC4: whatever the environment says, and for this machine too."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    server.responses = [[b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"]]
    for word in (f"not-{WORD}", WORD):
        kubeconfig = written(tmp_path, server, by(proxy, word))
        kube = Kube(await load(str(kubeconfig)), "test")
        if word == WORD:
            assert await kube.get("/version") == {}
        else:
            with pytest.raises(Unreachable, match=proxy.address) as raised:
                await kube.get("/version")
            assert WORD not in str(raised.value)
        await kube.close()
    await proxy.until_asked(f"CONNECT {NAME}:{server.port}")


async def test_a_certificate_is_fetched_by_the_proxy(
    proxy: RunningProxy, server: TlsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vSphere's, which has a thumbprint in the configuration."""
    monkeypatch.setenv("HTTPS_PROXY", by(proxy))
    vcenter = VCenter("lab", NAME, server.port, thumbprint="0" * 40)
    with pytest.raises(ValueError, match="the certificate has the thumbprint"):
        await fetch_certificate(vcenter)
    assert not server.requests


def written(directory: Path, server: TlsServer, proxy_url: str) -> Path:
    """A kubeconfig."""
    cluster = {"server": server.url, "certificate-authority": server.ca_file}
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {**cluster, "proxy-url": proxy_url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path
