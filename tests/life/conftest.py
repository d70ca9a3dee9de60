"""A cluster for all of these tests, which each of them leaves empty."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import orjson
import pytest

from ccm.kube.client import MERGE_PATCH, Kube
from tests.kube.cluster import RealCluster
from tests.life.kubelets import NODES, unless
from tests.life.users import SERVICES, VOLUMES
from tests.proc.cluster_nodes import connect
from tests.proc.running import RULES, Cloud, Where

STRANGERS = {
    "machines": [{"name": "theirs", "id": "m-theirs"}],
    "load_balancers": [
        {"name": "theirs", "tags": {"cluster": "another", "service": "uid"}},
        {"name": "nobodys", "tags": {}},
    ],
    "routes": [
        {"cidr": "10.255.0.0/24", "machine_id": "m-theirs", "tags": {"cluster": "another"}},
        {"cidr": "10.255.1.0/24", "machine_id": "m-theirs"},
    ],
}
"""What is in the cloud from the start and belongs to others, although it is in our networks."""

EVENTS = "/api/v1/namespaces/default/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


@pytest.fixture(scope="package")
def cluster(kube_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with RealCluster.start(kube_binaries, tmp_path_factory.mktemp("life") / "kube") as cluster:
        cluster.grant("ccm", RULES)
        yield cluster


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    """A cloud that is shared with others, and whose terminated machines are soon forgotten."""
    seed = tmp_path / "strangers.json"
    seed.write_bytes(orjson.dumps(STRANGERS))
    with Cloud(tmp_path, f"--seed-file={seed}", "--parameter=retention=3") as cloud:
        with cloud.config.open("a") as config:
            config.write("write-rate = 200\ntimeout = 1s\n")
        yield cloud


@pytest.fixture
def where(tmp_path: Path, cluster: RealCluster, cloud: Cloud) -> Where:
    return Where(tmp_path, cluster.kubeconfig("ccm"), cloud.config)


@pytest.fixture
async def api(cluster: RealCluster) -> AsyncIterator[Kube]:
    """The users' client; what it finds at the end, it takes away for the next test."""
    api = await connect(cluster.kubeconfig("admin"))
    yield api
    for path in (SERVICES, VOLUMES):
        names = [item["metadata"]["name"] for item in (await api.get(path))["items"]]
        await asyncio.gather(*(_free(api, f"{path}/{name}") for name in names))
    for path in (NODES, SERVICES, VOLUMES, EVENTS, LEASES):
        await api.request("DELETE", path)
    await api.close()


async def _free(api: Kube, path: str) -> None:
    """Let an object go that waits for a controller which runs no more."""
    with unless(404):
        await api.patch(path, MERGE_PATCH, {"metadata": {"finalizers": None}})
