"""A refusal by the API server passes: no start ends for good, and nobody has to start it again."""

import json
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.deadlines import timeout
from tests.support.environment import Environment
from tests.support.kube.cluster import RealCluster
from tests.support.replicas import Durations
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


async def test_rights_that_are_revoked_while_leading_and_come_back(
    env: Environment, cluster: RealCluster, account: str, as_account: Where
) -> None:
    with Supervisor(as_account, *Durations.short().flags()) as leader:
        await until("it leads", leader.is_leading)
        workers = leader.pids()
        cluster.revoke(account)
        log = leader.log.read_text
        await until("it stops leading", lambda: "leadership suspended" in log())
        await env.add_nodes(3)
        with Supervisor(as_account, name="late") as standby:
            reported = await until("it waits", partial(waits_for_access, standby))
            assert "grant this identity the rights" in reported
            cluster.service_account_kubeconfig("access", account, RULES)
            await env.nodes.until_initialized(3)
            await until("it stands by", lambda: standby.is_in("standby"))
        assert leader.pids() == workers
        assert "worker ended by itself" not in log()


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


@pytest.fixture
def silent_server(tmp_path: Path) -> Iterator[tuple[socket.socket, Where]]:
    """An API server that answers nothing, and how a supervisor gets there."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(timeout())
        kubeconfig = tmp_path / "kubeconfig"
        entries = {
            "clusters": {"cluster": {"server": "http://{}:{}".format(*listening.getsockname())}},
            "users": {"user": {"token": "t"}},
            "contexts": {"context": {"cluster": "c", "user": "c"}},
        }
        config = {kind: [{"name": "c", **entry}] for kind, entry in entries.items()}
        kubeconfig.write_text(json.dumps({**config, "current-context": "c"}))
        yield listening, Where(tmp_path, kubeconfig, tmp_path / "cloud.conf")


def test_a_signal_ends_a_start_that_is_asking(
    silent_server: tuple[socket.socket, Where],
) -> None:
    listening, where = silent_server
    with Supervisor(where) as supervisor, listening.accept()[0]:
        supervisor.process.send_signal(signal.SIGHUP)  # there is nothing to reload yet
        assert supervisor.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait(
    cluster: RealCluster, account: str, as_account: Where, number: signal.Signals
) -> None:
    cluster.revoke(account)
    with Supervisor(as_account) as supervisor:
        wait_for("it waits", partial(waits_for_access, supervisor))
        assert supervisor.end(number) == 0
    assert not is_alive(supervisor.process.pid)
