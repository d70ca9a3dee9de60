"""The image is swapped and the flags stay: `cloud-controller-manager` as DaemonSets start it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ccm.manifests.rbac import APP_NAME
from ccm.sandbox.kubelets import new_machines, registration
from tests.kube.cluster import RealCluster
from tests.proc.cluster_nodes import NodeWatcher
from tests.proc.environment import NODES, Environment
from tests.proc.running import Supervisor, Where, until, wait_for
from tests.rbac.grants import granted, is_allowed, rendered
from tests.worlds.nodes import network_condition

pytestmark = pytest.mark.real

COUNT = 3
COMMAND = Path(sys.executable).with_name("cloud-controller-manager")


def historical(cloud_config: Path) -> list[str]:
    """The arguments of upstream's example of a DaemonSet, for years."""
    return [
        "--cloud-provider=simulated",
        f"--cloud-config={cloud_config}",
        "--leader-elect=true",
        "--use-service-account-credentials",
        "--allocate-node-cidrs=true",
        "--configure-cloud-routes=true",
        "--cluster-cidr=172.17.0.0/16",
    ]


class DropIn(Supervisor):
    """The installed command. What a Pod gives by its account and volumes, variables give here."""

    def __init__(self, where: Where, arguments: list[str]) -> None:
        self.runtime, self.log = where.directory / "run", where.directory / "drop-in.log"
        variables = {
            "CCM_KUBECONFIG": str(where.kubeconfig),
            "CCM_RUNTIME_DIR": str(self.runtime),
            "CCM_SECURE_PORT": "0",
        }
        with open(self.log, "wb") as output:
            self.process = subprocess.Popen(
                [COMMAND, *arguments], env=os.environ | variables, stdout=output, stderr=output
            )


async def register(env: Environment) -> None:
    machines = new_machines(1, COUNT)
    await env.admin.add(machines)
    for number, machine in enumerate(machines):
        await env.api.post(NODES, registration(machine.name, f"172.17.{number}.0/24"))


def grant(cluster: RealCluster, manifests: str) -> None:
    """The rights that 'ccm-supervisor manifests' prints are in force."""
    cluster.kubectl("apply", "-f", "-", stdin=manifests)
    grains = granted(manifests, cluster)
    wait_for("rights are in force", lambda: all(is_allowed(cluster, grain) for grain in grains))


def have_networks(watcher: NodeWatcher) -> bool:
    nodes = list(watcher.nodes.values())
    return all(network_condition(node).get("status") == "False" for node in nodes)


async def test_the_arguments_of_an_upstream_daemon_set_initialize_nodes_and_make_routes(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CCM_LONG", raising=False)  # of ours alone; it names no flag
    arguments = historical(env.cloud.config)
    grant(env.cluster, rendered(*arguments))
    account = env.cluster.service_account_kubeconfig("kube-system", APP_NAME)
    with DropIn(Where(env.directory, account, env.cloud.config), arguments) as supervisor:
        supervisor.wait_running(60.0)
        await register(env)
        await env.nodes.until_initialized(COUNT, 30.0)
        await until("every node has its network", lambda: have_networks(env.nodes))
        routes = {route["cidr"] for route in (await env.admin.state())["routes"]}
        assert routes == {f"172.17.{number}.0/24" for number in range(COUNT)}
        assert supervisor.end() == 0
    log = supervisor.log.read_text()
    assert log.count("flag has no effect flag=--allocate-node-cidrs") == 1
    assert "is deprecated" not in log
    assert "name no flag" not in log
