"""What each account may do, asked of the API server itself: its rights and nothing else."""

from collections.abc import Iterator

import pytest

from ccm.kube.service_accounts import ACCOUNTS
from tests.kube.cluster import RealCluster
from tests.kube.rest import JSON
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


def rights(cluster: RealCluster, token: str, namespace: str) -> set[tuple[str, str, str, str]]:
    """Verb, group, resource and name of all that the owner of this token may do there."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": JSON}
    spec = {"spec": {"namespace": namespace}}
    answer = cluster.client.send("POST", RULES_REVIEW, spec, headers=headers).expect()
    return {
        (verb, group, resource, name)
        for rule in answer.body["status"]["resourceRules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames") or [""]
    }


@pytest.mark.parametrize("account", [SUPERVISOR, *ACCOUNTS.values()])
def test_an_account_has_its_rights_and_nothing_else(
    account: str, cluster: RealCluster, tokens: dict[str, str], grains: dict[Grain, str]
) -> None:
    for namespace in NAMESPACES:
        nobodys = rights(cluster, tokens["nobody"], namespace)
        assert rights(cluster, tokens[account], namespace) - nobodys == {
            (grain.verb, grain.group, grain.resource, grain.name)
            for grain in grains
            if grain.account == account and grain.namespace in ("", namespace)
        }
