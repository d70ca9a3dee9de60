"""What each account may do, asked of the API server itself: its rights and nothing else."""

from collections.abc import Iterator

import pytest

from ccm.kube.service_accounts import ACCOUNTS
from ccm.sandbox.kubelets import registration
from ccm.sandbox.workload import SERVICE
from tests.kube.cluster import RealCluster
from tests.kube.rest import JSON, MERGE_PATCH, Answer
from tests.proc.running import Json
from tests.rbac.grants import Grain, applied, rendered

pytestmark = pytest.mark.real

SUPERVISOR = "ccm-supervisor"
SYSTEM = "/api/v1/namespaces/kube-system"
RULES_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
NAMESPACES = ("kube-system", "default", "kube-public")


@pytest.fixture(scope="module")
def grains(cluster: RealCluster) -> Iterator[dict[Grain, str]]:
    flags = ("--cloud-provider=simulated", "--use-service-account-credentials")
    with applied(cluster, rendered(*flags)) as grains:
        yield grains


@pytest.fixture(scope="module")
def tokens(cluster: RealCluster, grains: dict[Grain, str]) -> dict[str, str]:
    """One for each account, and one for an account without rights."""
    nobody = {"metadata": {"name": "nobody"}}
    cluster.request("POST", f"{SYSTEM}/serviceaccounts", nobody).expect()

    def token(account: str) -> str:
        path = f"{SYSTEM}/serviceaccounts/{account}/token"
        answer = cluster.request("POST", path, {"spec": {}}).expect()
        return str(answer.body["status"]["token"])

    return {account: token(account) for account in (SUPERVISOR, *ACCOUNTS.values(), "nobody")}


@pytest.fixture
def ask(cluster: RealCluster, tokens: dict[str, str]) -> "Ask":
    return Ask(cluster, tokens)


class Ask:
    """Requests as one of the accounts."""

    def __init__(self, cluster: RealCluster, tokens: dict[str, str]) -> None:
        self._cluster, self._tokens = cluster, tokens

    def __call__(
        self, account: str, method: str, path: str, body: Json | None = None, kind: str = JSON
    ) -> Answer:
        headers = {"Authorization": f"Bearer {self._tokens[account]}", "Content-Type": kind}
        return self._cluster.client.send(method, path, body, headers=headers)

    def rights(self, account: str, namespace: str) -> set[tuple[str, str, str, str]]:
        """Verb, group, resource and name of all that it may do there."""
        spec = {"spec": {"namespace": namespace}}
        rules = self(account, "POST", RULES_REVIEW, spec).expect().body["status"]["resourceRules"]
        return {
            (verb, group, resource, name)
            for rule in rules
            for verb in rule["verbs"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for name in rule.get("resourceNames") or [""]
        }


@pytest.mark.parametrize("account", [SUPERVISOR, *ACCOUNTS.values()])
def test_an_account_has_its_rights_and_nothing_else(
    account: str, ask: Ask, grains: dict[Grain, str]
) -> None:
    for namespace in NAMESPACES:
        told = ask.rights(account, namespace) - ask.rights("nobody", namespace)
        assert told == {
            (grain.verb, grain.group, grain.resource, grain.name)
            for grain in grains
            if grain.account == account and grain.namespace in ("", namespace)
        }


def test_only_the_node_worker_deletes_a_node(cluster: RealCluster, ask: Ask) -> None:
    cluster.request("POST", "/api/v1/nodes", registration("vm-1")).expect()
    for account in (SUPERVISOR, *ACCOUNTS.values()):
        expected = 200 if account == ACCOUNTS["node"] else 403
        assert ask(account, "DELETE", "/api/v1/nodes/vm-1").status == expected
        cluster.request("POST", "/api/v1/nodes", registration("vm-1")).expect(201, 409)
    cluster.request("DELETE", "/api/v1/nodes/vm-1").expect()


def test_nobody_reads_secrets_or_becomes_somebody_else(ask: Ask) -> None:
    for account in (SUPERVISOR, *ACCOUNTS.values()):
        assert ask(account, "GET", "/api/v1/secrets").status == 403
        assert ask(account, "GET", f"{SYSTEM}/secrets").status == 403
        for other in ("default", SUPERVISOR, "node-controller"):
            path = f"{SYSTEM}/serviceaccounts/{other}/token"
            assert ask(account, "POST", path, {"spec": {}}).status == 403


def test_the_service_worker_cannot_change_what_a_service_is(cluster: RealCluster, ask: Ask) -> None:
    services = "/api/v1/namespaces/default/services"
    cluster.request("POST", services, SERVICE).expect()
    change = {"spec": {"externalIPs": ["198.51.100.1"]}}
    path, account = f"{services}/web", ACCOUNTS["service"]
    assert ask(account, "PATCH", path, change, MERGE_PATCH).status == 403
    ask(account, "PATCH", f"{path}/status", change, MERGE_PATCH).expect()
    assert "externalIPs" not in cluster.request("GET", path).body["spec"]
    cluster.request("DELETE", path).expect()
