"""The rendered Pod does its work with nothing but what its manifest gives it."""

import asyncio
import json
import os
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from ccm.kube.client import Kube
from ccm.sandbox.cloud.client import CloudAdmin
from ccm.sandbox.kubelets import new_machines, register
from tests.kube.cluster import RealCluster
from tests.kube.ports import ReservedPort
from tests.proc.cluster_nodes import Witness
from tests.proc.running import Cloud
from tests.rbac.grants import applied, objects, rendered
from tests.rbac.pod import Pod, why_not
from tests.rbac.story import until

pytestmark = pytest.mark.real


@pytest.fixture
def possible() -> None:
    missing = why_not()
    if missing and os.environ.get("CI"):
        pytest.fail(missing)
    if missing:
        pytest.skip(f"NOT RUN as a Pod: {missing}")


def filled(directory: Path, **files: str) -> Path:
    directory.mkdir()
    for name, content in files.items():
        (directory / name.replace("_", ".")).write_text(content)
    return directory


@pytest.mark.usefixtures("possible")
async def test_a_pod_of_these_manifests_initialises_nodes(
    cluster: RealCluster, api: Kube, tmp_path: Path
) -> None:
    port = ReservedPort()
    text = rendered(
        "--cloud-provider=simulated",
        "--cloud-config=/etc/cloud/cloud.conf",
        "--use-service-account-credentials",
        "--bind-address=127.0.0.1",
        f"--secure-port={port.number}",
    )
    (daemon_set,) = objects(text, "DaemonSet")
    with applied(cluster, text), Cloud(tmp_path) as cloud:
        account = "/api/v1/namespaces/kube-system/serviceaccounts/ccm-supervisor"
        token = cluster.request("POST", f"{account}/token", {"spec": {}}).expect().body
        host, _, number = cluster.url.removeprefix("https://").partition(":")
        pod = Pod(
            tmp_path,
            daemon_set["spec"]["template"]["spec"],
            {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": number},
            {
                "account": filled(
                    tmp_path / "account",
                    token=token["status"]["token"],
                    ca_crt=cluster.ca_file.read_text(),
                ),
                "cloud-config": filled(tmp_path / "config", cloud_conf=cloud.config.read_text()),
            },
        )
        port.release()  # it is for our user only, and the Pod has another one
        with pod:
            await initialise(api, cloud)
            for probe in pod.probes():
                await until(f"{probe} succeeds", partial(succeeds, probe))
            status = await asyncio.to_thread(pod.run, "ccm-supervisor", "status", "-o", "json")
            assert json.loads(status)["leader"]["may_act"]
            assert await asyncio.to_thread(pod.end) == 0, pod.log()


async def succeeds(probe: str) -> bool:
    async with aiohttp.ClientSession() as kubelet, kubelet.get(probe, ssl=False) as answer:
        return answer.status == 200


async def initialise(api: Kube, cloud: Cloud) -> None:
    """Nodes that join get what they need."""
    witness = Witness(api)
    watching = asyncio.create_task(witness.run())
    async with CloudAdmin(cloud.url) as admin:
        await admin.add(new_machines(1, 3))
    await register(api, ["vm-1", "vm-2", "vm-3"])
    await witness.until_initialised(3, 30)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
