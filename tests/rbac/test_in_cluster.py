"""The rendered Pod does its work with nothing but what its manifest gives it."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from ccm.kube.client import Kube
from ccm.manifests.rbac import APP_NAME
from ccm.sandbox.cloud.client import CloudAdmin
from tests.kube.cluster import RealCluster
from tests.kube.ports import ReservedPort
from tests.proc.running import Cloud
from tests.rbac.grants import applied, objects, rendered
from tests.rbac.pod import Pod, why_not
from tests.rbac.story import Page, Story, until

pytestmark = pytest.mark.real

ACCOUNT = f"/api/v1/namespaces/kube-system/serviceaccounts/{APP_NAME}"
FLAGS = (
    "--cloud-provider=simulated",
    "--cloud-config=/etc/cloud/cloud.conf",
    "--use-service-account-credentials",
    "--bind-address=127.0.0.1",
    "--worker-silence-limit=1m",
)


@pytest.fixture
def port() -> int:
    """One that is free: the Pod's user could not share a reserved one."""
    port = ReservedPort()
    port.release()
    return port.number


@pytest.fixture
def possible() -> None:
    missing = why_not()
    if missing and os.environ.get("CI"):
        pytest.fail(missing)
    if missing:
        pytest.skip(f"NOT RUN as a Pod: {missing}")


@pytest.mark.usefixtures("possible")
async def test_a_pod_of_these_manifests_initialises_nodes(
    cluster: RealCluster, api: Kube, port: int, tmp_path: Path
) -> None:
    text = rendered(*FLAGS, f"--secure-port={port}")
    (daemon_set,) = objects(text, "DaemonSet")
    spec = daemon_set["spec"]["template"]["spec"]
    host, _, number = cluster.url.removeprefix("https://").partition(":")
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": number}
    with applied(cluster, text), Cloud(tmp_path) as cloud:
        volumes = {
            "account": filled(tmp_path / "account", account_files(cluster)),
            "cloud-config": filled(tmp_path / "config", {"cloud.conf": cloud.config.read_text()}),
        }
        async with CloudAdmin(cloud.url) as admin:
            story = Story(api, admin)
            with Pod(tmp_path, spec, environment, volumes) as pod:
                await story.joins("vm-1")
                for url in pod.probes():
                    await until(f"{url} succeeds", Page(url).is_shown)
                status = await asyncio.to_thread(pod.run, "ccm-supervisor", "status", "-o", "json")
                assert json.loads(status)["leader"]["is_leader"]
                assert await asyncio.to_thread(pod.end) == 0, pod.log()
            await story.forget()


def account_files(cluster: RealCluster) -> dict[str, str]:
    """What the kubelet mounts for the Pod's service account."""
    answer = cluster.request("POST", f"{ACCOUNT}/token", {"spec": {}}).expect()
    return {"token": answer.body["status"]["token"], "ca.crt": cluster.ca_file.read_text()}


def filled(directory: Path, files: dict[str, str]) -> Path:
    directory.mkdir()
    for name, content in files.items():
        (directory / name).write_text(content)
    return directory
