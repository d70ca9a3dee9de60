"""A refusal by the API server passes: no start ends for good, and nobody has to start it again."""

import json
import signal
from dataclasses import replace
from functools import partial
from uuid import uuid4

import pytest

from tests.support.environment import Environment
from tests.support.kube.access import RBAC
from tests.support.kube.cluster import RealCluster
from tests.support.running import (
    RULES,
    Supervisor,
    Where,
    is_alive,
    until,
    wait_for,
    waits_for_access,
)

pytestmark = pytest.mark.real


@pytest.fixture
def account(cluster: RealCluster) -> str:
    """The name of a service account that has all rights so far."""
    return f"ccm-{uuid4().hex[:8]}"


@pytest.fixture
def as_account(where: Where, cluster: RealCluster, account: str) -> Where:
    kubeconfig = cluster.service_account_kubeconfig("access", account, RULES)
    return replace(where, kubeconfig=kubeconfig)


def bindings(cluster: RealCluster, account: str) -> list[str]:
    found = cluster.request("GET", f"{RBAC}/clusterrolebindings").expect().body["items"]
    names = [item["metadata"]["name"] for item in found]
    return [name for name in names if name.startswith(account)]


def revoke(cluster: RealCluster, account: str) -> None:
    for name in bindings(cluster, account):
        cluster.request("DELETE", f"{RBAC}/clusterrolebindings/{name}").expect()


async def test_rights_that_are_revoked_while_leading_and_come_back(
    env: Environment, cluster: RealCluster, account: str, as_account: Where
) -> None:
    with Supervisor(as_account) as leader:
        await until("it leads", leader.is_leading)
        revoke(cluster, account)
        code = await until("it ends", lambda: leader.process.poll())
        assert code == 1  # which systemd and the kubelet start again
    with Supervisor(as_account, name="started-again") as again:
        log = await until("it waits", partial(waits_for_access, again))
        assert "grant this identity the rights" in log
        cluster.service_account_kubeconfig("access", account, RULES)
        await until("it leads", again.is_leading)
        await env.add_nodes(3)
        await env.nodes.until_initialized(3)
        assert again.log.read_text().count("waiting for access") == 1
        assert "the API server grants access" in again.log.read_text()


async def test_a_token_that_is_not_accepted_is_read_again(
    env: Environment, as_account: Where
) -> None:
    valid = as_account.kubeconfig.read_text()
    broken = json.loads(valid)
    broken["users"][0]["user"]["token"] = "not-yet-valid"
    as_account.kubeconfig.write_text(json.dumps(broken))
    with Supervisor(as_account) as supervisor:
        log = await until("it waits", partial(waits_for_access, supervisor))
        assert "renew the token" in log
        as_account.kubeconfig.write_text(valid)
        await until("it leads", supervisor.is_leading)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait(
    cluster: RealCluster, account: str, as_account: Where, number: signal.Signals
) -> None:
    revoke(cluster, account)
    with Supervisor(as_account) as supervisor:
        wait_for("it waits", partial(waits_for_access, supervisor))
        assert supervisor.end(number) == 0
    assert not is_alive(supervisor.process.pid)
