"""Credentials of a kubeconfig that change while we run are used without a restart."""

import json
import ssl
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from ccm.directories import make_private
from ccm.errors import KubernetesError, NoCredentials, Unreachable
from ccm.kube import config
from ccm.kube.client import Kube, RestConfig
from ccm.model.objects import Json
from tests.support.pki import Authority
from tests.unit.api_server import failure, json_answer, serving

PLUGIN = """#!/bin/sh
read -r token < "{tokens}" || exit 1
sed -i 1d "{tokens}"
cat <<END
{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
 "status": {{"token": "$token", "expirationTimestamp": "{expiry}"}}}}
END
"""


class Host:
    """A kubeconfig whose user has a token file, or a plugin that prints the next of some tokens."""

    def __init__(self, directory: Path) -> None:
        self.tokens = directory / "tokens"
        self._plugin, self._kubeconfig = directory / "plugin", directory / "kubeconfig"
        self._user: Json = {}
        self._cluster: dict[str, str] = {"server": "http://127.0.0.1:9"}

    def with_file(self, token: str) -> None:
        self.tokens.write_text(token)
        self._user = {"tokenFile": str(self.tokens)}

    def with_plugin(self, *tokens: str, expiry: str) -> None:
        self.tokens.write_text("".join(f"{token}\n" for token in tokens))
        self._plugin.write_text(PLUGIN.format(tokens=self.tokens, expiry=expiry))
        self._plugin.chmod(0o700)
        api = "client.authentication.k8s.io/v1"
        self._user = {"exec": {"apiVersion": api, "command": str(self._plugin)}}

    def with_token(self, token: str) -> None:
        self._user = {"token": token}
        self.write()

    def with_certificate(self, ca: Authority, name: str) -> None:
        """The same files as before, for another name."""
        cert, key = ca.client(name).write(self._kubeconfig.parent, "us")
        self._user = {"client-certificate": str(cert), "client-key": str(key)}

    def with_inline_certificate(self, ca: Authority, name: str) -> None:
        signed = ca.client(name)
        pair = {"client-certificate-data": signed.pem, "client-key-data": signed.key_pem}
        self._user = {key: b64encode(value).decode() for key, value in pair.items()}

    def with_plugin_of_certificates(self, ca: Authority, name: str) -> None:
        signed, api = ca.client(name), "client.authentication.k8s.io/v1"
        pair = {"clientCertificateData": signed.pem, "clientKeyData": signed.key_pem}
        status = {key: value.decode() for key, value in pair.items()}
        body = {"apiVersion": api, "kind": "ExecCredential", "status": status}
        self.tokens.write_text(json.dumps(body))
        self._user = {"exec": {"apiVersion": api, "command": "cat", "args": [str(self.tokens)]}}

    def break_plugin(self) -> None:
        self._plugin.write_text("#!/bin/sh\nexit 1\n")

    def write(self, url: str = "", ca_file: str = "") -> None:
        self._cluster = {"server": url, "certificate-authority": ca_file} if url else self._cluster
        cluster = {name: value for name, value in self._cluster.items() if value}
        body = {
            "current-context": "here",
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": "us", "user": self._user}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "us"}}],
        }
        self._kubeconfig.write_text(json.dumps(body))

    async def connect(self, url: str, ca_file: str = "", reread_interval: float = 0.0) -> Kube:
        self.write(url, ca_file)
        return Kube(await config.load(str(self._kubeconfig), "", reread_interval), "us")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


async def shown(host: Host, *before: object) -> list[str]:
    """The tokens of one request each, after each of these changes."""
    async with serving(json_answer({})) as (server, _):
        kube = await host.connect(server.url)
        for change in before:
            if callable(change):
                change()
            await kube.get("/api")
        await kube.close()
        return [request.headers["Authorization"] for request in server.requests]


async def test_a_token_file_that_is_gone_for_a_moment_changes_nothing(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    host.with_file("one")
    gone, back = host.tokens.unlink, lambda: host.tokens.write_text("two")
    assert await shown(host, None, gone, None, back) == [*["Bearer one"] * 3, "Bearer two"]
    assert caplog.text.count("credentials not read again") == 1


@pytest.mark.parametrize(
    ("expiry", "expected"),
    [
        ("2020-01-01T00:00:00Z", ["Bearer two", "Bearer three"]),
        ("2120-01-01T00:00:00Z", ["Bearer one"] * 2),
    ],
    ids=["ended", "good"],
)
async def test_a_plugin_is_asked_again_when_its_token_ends(
    host: Host, expiry: str, expected: list[str]
) -> None:
    host.with_plugin("one", "two", "three", expiry=expiry)
    assert await shown(host, None, None) == expected


async def test_the_token_of_a_pod_is_read_again_and_may_be_gone_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("one\n")
    authority.write_text("a certificate")
    monkeypatch.setattr(config, "POD_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    access = await config.load(reread_interval=0.0)
    assert (access.server.url, access.server.ca_file) == ("https://[fd00::1]:443", str(authority))
    assert await access.bearer() == "one"
    for content in (None, ""):
        token.unlink() if content is None else token.write_text(content)
        assert await access.bearer() == "one"
    token.write_text("two")
    assert await access.bearer() == "two"


EXPIRY = "2120-01-01T00:00:00Z"


async def only_two(request: web.Request) -> web.StreamResponse:
    """Takes the token or the certificate of `two` alone."""
    names = (request.get_extra_info("peercert") or {}).get("subject", ())
    is_two = "two" in request.headers.get("Authorization", "") or (
        (("commonName", "two"),) in names
    )
    return await (json_answer({}) if is_two else failure(401, "Unauthorized"))(request)


def serving_tls(directory: Path, ca: Authority) -> tuple[Path, ssl.SSLContext]:
    """The file of an authority, and TLS of a server; it signed for the server and its clients."""
    (ca_file := directory / "ca.pem").write_bytes(ca.pem)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(ca_file))
    tls.load_cert_chain(*ca.server("localhost").write(directory, "server"))
    tls.verify_mode = ssl.CERT_OPTIONAL
    return ca_file, tls


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            lambda host, _: host.with_file("one"), lambda host, _: host.with_file("two"), id="file"
        ),
        pytest.param(
            lambda host, _: host.with_token("one"),
            lambda host, _: host.with_token("two"),
            id="kubeconfig",
        ),
        pytest.param(
            lambda host, _: host.with_plugin("one", "two", expiry=EXPIRY),
            lambda host, _: None,
            id="plugin",
        ),
        pytest.param(
            lambda host, ca: host.with_certificate(ca, "one"),
            lambda host, ca: host.with_certificate(ca, "two"),
            id="certificate",
        ),
    ],
)
async def test_credentials_that_are_refused_are_read_again(
    host: Host,
    tmp_path: Path,
    before: Callable[[Host, Authority], None],
    after: Callable[[Host, Authority], None],
) -> None:
    """KC2: the successor is there already."""
    ca = Authority("ca")
    ca_file, tls = serving_tls(tmp_path, ca)
    async with serving(only_two, tls=tls) as (server, _):
        before(host, ca)
        kube = await host.connect(server.url, str(ca_file), reread_interval=3600.0)
        after(host, ca)
        with pytest.raises(KubernetesError):
            await kube.get("/api")
        assert await kube.get("/api") == {}
        await kube.close()


@pytest.mark.parametrize("give", [Host.with_inline_certificate, Host.with_plugin_of_certificates])
async def test_a_certificate_without_a_file_of_its_own_is_renewed_for_workers_too(
    host: Host,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    give: Callable[[Host, Authority, str], None],
) -> None:
    """A worker knows files alone: it had the first certificate until the supervisor ended."""
    make_private(run := tmp_path / "run")
    monkeypatch.setenv("CCM_RUNTIME_DIR", str(run))
    ca = Authority("ca")
    ca_file, tls = serving_tls(tmp_path, ca)
    async with serving(only_two, tls=tls) as (server, _):
        give(host, ca, "one")
        supervisor = await host.connect(server.url, str(ca_file), reread_interval=3600.0)
        worker = Kube(RestConfig(supervisor.config.server), "worker")
        give(host, ca, "two")
        host.write()
        for kube in (supervisor, worker):
            with pytest.raises(KubernetesError):
                await kube.get("/api")
            assert await kube.get("/api") == {}
            await kube.close()
    assert len({*run.iterdir()}) == 2


async def test_a_kubeconfig_of_another_cluster_takes_no_client_there(
    host: Host, tmp_path: Path
) -> None:
    """Its objects would be ours: routes and backends of our Nodes would go."""
    ca = Authority("ca")
    ca_file, tls = serving_tls(tmp_path, ca)
    refuse, answer = failure(401, "Unauthorized"), json_answer({})
    async with serving(refuse, tls=tls) as (ours, _), serving(answer, tls=tls) as (other, _):
        host.with_certificate(ca, "one")
        kube = await host.connect(ours.url, str(ca_file))
        host.write(other.url, str(ca_file))
        for _ in range(2):
            with pytest.raises(KubernetesError):
                await kube.get("/api")
        await kube.close()
        assert (len(ours.requests), len(other.requests)) == (2, 0)


async def test_a_renewed_authority_of_the_api_server_is_trusted_without_a_restart(
    host: Host, tmp_path: Path
) -> None:
    """As that of a Pod's account is: the kubelet brings the file."""
    before, after = Authority("ca"), Authority("ca")
    ca_file, tls = serving_tls(tmp_path, before)
    async with serving(json_answer({}), tls=tls) as (server, _):
        host.with_token("one")
        kube = await host.connect(server.url, str(ca_file))
        tls.load_cert_chain(*after.server("localhost").write(tmp_path, "server"))
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await kube.get("/api")
        ca_file.write_bytes(after.pem)
        with pytest.raises(Unreachable):
            await kube.get("/api")
        assert await kube.get("/api") == {}
        await kube.close()


async def test_a_plugin_that_fails_makes_no_one_anonymous(host: Host) -> None:
    host.with_plugin("one", expiry=EXPIRY)
    async with serving(failure(401, "Unauthorized")) as (server, _):
        kube = await host.connect(server.url)
        host.break_plugin()
        for _ in range(2):
            with pytest.raises(KubernetesError):
                await kube.get("/api")
        await kube.close()
        assert {request.headers["Authorization"] for request in server.requests} == {"Bearer one"}
        with pytest.raises(NoCredentials, match="credential plugin"):
            await host.connect(server.url)
