"""A cloud that others use as well, and the life in it and in the cluster."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import orjson
import pytest

from ccm.kube.client import Kube
from tests.e2e.chaos.life import Life, living
from tests.e2e.chaos.processes import started
from tests.e2e.conftest import api, cluster, proxy, where
from tests.support.deadlines import timeout
from tests.support.running import Cloud, Where

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

__all__ = ["api", "cluster", "proxy", "where"]


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    """A cloud that is shared with others, and whose terminated machines are soon forgotten."""
    seed = tmp_path / "strangers.json"
    seed.write_bytes(orjson.dumps(STRANGERS))
    with Cloud(tmp_path, f"--seed-file={seed}", "--parameter=retention=3") as cloud:
        with cloud.config.open("a") as config:
            config.write(f"write-rate = 200\ntimeout = {timeout(0.5):g}s\n")
        yield cloud


@pytest.fixture
async def life(where: Where, cloud: Cloud, api: Kube) -> AsyncIterator[Life]:
    async with living(started(where), cloud, api) as life:
        yield life
