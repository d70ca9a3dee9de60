"""The real cluster is what it says: pinned, authenticating, authorizing, durable and mortal."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kube.build import KUBERNETES, cache_folder
from tests.kube.cluster import ClusterError, RealCluster
from tests.proc.running import is_alive, wait_for

ROOT = Path(__file__).parents[2]
NODES = "/api/v1/nodes"
MAPS = "/api/v1/namespaces/default/configmaps"
READ_NODES = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}
START_AND_SLEEP = """
import sys, time
from pathlib import Path
from tests.kube.cluster import RealCluster
cluster = RealCluster.start(Path(sys.argv[1]), Path(sys.argv[2]))
print(*cluster.pids.values(), flush=True)
time.sleep(600)
"""


def test_the_version_is_the_pinned_one(kube: RealCluster, kube_binaries: Path) -> None:
    if kube_binaries != cache_folder():
        pytest.skip("KUBEBUILDER_ASSETS says which version, and not our pin")
    answer = kube.request("GET", "/version").expect()
    assert answer.body["gitVersion"] == KUBERNETES.version
    assert f"Client Version: {KUBERNETES.version}" in kube.kubectl("version")


def test_a_service_account_gets_a_token_and_rights(kube: RealCluster) -> None:
    path = kube.service_account_kubeconfig("test-accounts", "controller", [READ_NODES])
    who = kube.kubectl(f"--kubeconfig={path}", "auth", "whoami", "-o", "yaml")
    assert "username: system:serviceaccount:test-accounts:controller" in who
    assert kube.kubectl(f"--kubeconfig={path}", "get", "nodes", "-o", "name") == ""
    with pytest.raises(ClusterError, match="Forbidden"):
        kube.kubectl(f"--kubeconfig={path}", "get", "secrets")


def test_two_clusters_side_by_side_know_nothing_of_each_other(
    kube: RealCluster, fresh_kube: RealCluster
) -> None:
    assert kube.url != fresh_kube.url
    kube.request("POST", NODES, {"metadata": {"name": "test-only-here"}}).expect(201)
    assert kube.request("GET", f"{NODES}/test-only-here").status == 200
    assert fresh_kube.request("GET", f"{NODES}/test-only-here").status == 404
    foreign = {"Authorization": f"Bearer {kube.token('admin')}"}
    assert fresh_kube.client.send("GET", NODES, headers=foreign).status == 401


def test_the_audit_log_knows_who_wrote_what(kube: RealCluster) -> None:
    kube.request("POST", MAPS, {"metadata": {"name": "test-audit"}}).expect(201)
    kube.request("DELETE", f"{MAPS}/test-audit", identity="nobody").expect(403)
    kube.request("GET", f"{MAPS}/test-audit").expect(200)
    made, refused, read = (entry for entry in kube.audit() if entry.name == "test-audit")
    assert (made.user, made.verb, made.code) == ("admin", "create", 201)
    where = (made.user_agent, made.namespace, made.resource)
    assert where == ("real-cluster", "default", "configmaps")
    assert (refused.user, refused.verb, refused.code) == ("nobody", "delete", 403)
    assert [entry.is_write for entry in (made, refused, read)] == [True, True, False]


def test_a_killed_api_server_refuses_until_it_is_started_with_its_url_tokens_and_data(
    fresh_kube: RealCluster,
) -> None:
    url = fresh_kube.url
    durable = {"metadata": {"name": "durable"}, "data": {"key": "value"}}
    fresh_kube.request("POST", MAPS, durable).expect(201)
    fresh_kube.kill_apiserver()
    assert list(fresh_kube.pids) == ["etcd"]
    with pytest.raises(OSError, match="refused"):
        fresh_kube.request("GET", "/readyz")
    fresh_kube.start_apiserver()
    assert fresh_kube.url == url
    assert fresh_kube.request("GET", "/readyz").status == 200
    assert fresh_kube.request("GET", f"{MAPS}/durable").expect().body["data"] == durable["data"]


def test_a_server_that_cannot_start_says_why(kube_binaries: Path, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"(?s)kube-apiserver ended.*unknown flag: --no-such"):
        RealCluster.start(kube_binaries, tmp_path, ["--no-such-flag"])


def test_it_outlives_the_thread_that_started_it_and_not_its_stop(
    kube_binaries: Path, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(1) as thread:
        cluster = thread.submit(RealCluster.start, kube_binaries, tmp_path).result()
    with cluster:
        pids = list(cluster.pids.values())
        assert len(pids) == 2
        assert cluster.request("GET", "/readyz").status == 200
    assert not cluster.pids
    assert not any(map(is_alive, pids))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of a death")
def test_nothing_outlives_a_killed_test_process(kube_binaries: Path, tmp_path: Path) -> None:
    command = (sys.executable, "-c", START_AND_SLEEP, str(kube_binaries), str(tmp_path))
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        pids = [int(pid) for pid in tests.stdout.readline().split()]
        assert len(pids) == 2
        tests.send_signal(signal.SIGKILL)
    wait_for("both are gone", lambda: not any(map(is_alive, pids)))
