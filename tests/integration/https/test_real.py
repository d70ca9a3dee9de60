"""Against a real API server: its tokens, its RBAC, its ConfigMap and its client CA."""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ccm.checks.https import CLIENT_CA_RULE, REVIEW_RULES
from ccm.manifests.rbac import rule_body
from tests.integration.https.served import LocalServer, eventually, serving_routes
from tests.integration.https.test_endpoints import Supervisor
from tests.support.kube.cluster import RealCluster
from tests.support.pki import Authority

pytestmark = pytest.mark.real

NAMESPACE = "ccm-https"
REVIEWER = [rule_body(rule) for rule in (*REVIEW_RULES, CLIENT_CA_RULE)]
"""What the supervisor needs for its own server, as `ccm-supervisor manifests` grants it."""

PAGES = [
    ("GET", "/metrics"),
    ("GET", "/metrics/slis"),
    ("DELETE", "/metrics/slis"),
    ("GET", "/configz"),
    ("GET", "/flagz"),
    ("GET", "/statusz"),
    ("GET", "/healthz/ping"),
    ("GET", "/readyz/node-0"),
    ("GET", "/debug/stacks"),
    ("GET", "/debug/pprof/heap"),
    ("PUT", "/debug/flags/v"),
]


@dataclass(frozen=True, slots=True)
class Real:
    """A cluster whose API server takes client certificates, and the CAs of these."""

    cluster: RealCluster
    clients: Authority
    proxies: Authority

    def token(self, name: str, *paths: str, verb: str = "get") -> str:
        """A token of a service account that may use the verb on these paths."""
        rules = [{"nonResourceURLs": [path], "verbs": [verb]} for path in paths]
        kubeconfig = self.cluster.service_account_kubeconfig(NAMESPACE, name, rules)
        token: str = json.loads(kubeconfig.read_text())["users"][0]["user"]["token"]
        return token


@pytest.fixture(scope="module")
def real(kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    directory = tmp_path_factory.mktemp("https")
    clients, proxies = Authority("clients"), Authority("proxies")
    (directory / "clients.crt").write_bytes(clients.pem)
    (directory / "proxies.crt").write_bytes(proxies.pem)
    flags = [
        f"--client-ca-file={directory / 'clients.crt'}",
        f"--requestheader-client-ca-file={directory / 'proxies.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    ]
    with RealCluster.start(kube_binaries, directory / "kube", flags) as cluster:
        yield Real(cluster, clients, proxies)


@pytest.fixture
async def server(real: Real) -> AsyncIterator[LocalServer]:
    """All pages, by a supervisor with the permissions that the manifests give."""
    kubeconfig = real.cluster.service_account_kubeconfig(NAMESPACE, "supervisor", REVIEWER)
    routes = Supervisor().endpoints().routes(is_profiling=True)
    async with serving_routes(routes, kubeconfig=str(kubeconfig)) as server:
        yield server


@pytest.mark.parametrize(("method", "path"), PAGES)
async def test_a_token_opens_the_page_that_rbac_grants_and_no_other(
    real: Real, server: LocalServer, method: str, path: str
) -> None:
    name = f"{method}{path}".lower().replace("/", "-")
    token = real.token(name, path, verb=method.lower())
    answer = await server.request(method, path, token=token, body="0" if method == "PUT" else None)
    assert answer.status in (200, 501)
    others = [page for page in PAGES if page != (method, path)]
    assert [(await server.request(*other, token=token)).status for other in others] == [403] * 10


async def test_without_rights_the_refusal_names_the_account(
    real: Real, server: LocalServer
) -> None:
    answer = await server.get("/metrics", token=real.token("nobody"))
    account = f"system:serviceaccount:{NAMESPACE}:nobody"
    assert answer.status == 403
    assert answer.json()["message"].startswith(
        f'forbidden: User "{account}" cannot get path "/metrics"'
    )
    assert (await server.get("/metrics")).status == 403
    assert (await server.get("/metrics", token="a.b.c")).status == 401
    assert (await server.get("/healthz")).status == 200


async def test_a_client_certificate_of_the_api_server_counts_here(
    real: Real, server: LocalServer, tmp_path: Path
) -> None:
    admin = real.clients.client("admin", "system:masters").present(tmp_path)
    alice = real.clients.client("alice").present(tmp_path)
    await eventually(lambda: server.get("/metrics", tls=admin), lambda answer: answer.status == 200)
    refused = await server.get("/configz", tls=alice)
    assert refused.status == 403
    assert 'User "alice" cannot get path "/configz"' in refused.json()["message"]
    real.cluster.grant("alice", [{"nonResourceURLs": ["/flagz"], "verbs": ["get"]}])
    assert (await server.get("/flagz", tls=alice)).status == 200


async def test_a_front_proxy_of_the_cluster_names_its_client(
    real: Real, server: LocalServer, tmp_path: Path
) -> None:
    real.cluster.grant("bob", [{"nonResourceURLs": ["/statusz"], "verbs": ["get"]}])
    bob = [("X-Remote-User", "bob")]
    proxy = real.proxies.client("front-proxy-client").present(tmp_path)
    other = real.proxies.client("some-other-name").present(tmp_path)
    await eventually(
        lambda: server.get("/statusz", tls=proxy, headers=bob), lambda answer: answer.status == 200
    )
    assert (await server.get("/statusz", tls=other, headers=bob)).status == 401
    assert (await server.get("/metrics", tls=proxy, headers=bob)).status == 403
