"""Sixty real instances: what it costs to initialise and to refresh their Nodes, and how long."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccm.kube.client import Kube
from ccm.model.cloud import Instance
from ccm.sandbox.kubelets import registration
from tests.e2e.conftest import api, cluster
from tests.labs.incus.gateway import Gateway
from tests.labs.incus.lab import Lab
from tests.providers.incus.conftest import Started
from tests.providers.incus.test_incus_balancers import node_of
from tests.providers.incus.test_incus_traffic import LIMIT, Site
from tests.support.environment import NODES
from tests.support.kube.cluster import RealCluster
from tests.support.running import Where, long, until

__all__ = ["api", "cluster"]

pytestmark = [long, pytest.mark.real, pytest.mark.timeout(600)]

COUNT = 60
MANY = tuple(f"many-{number}" for number in range(COUNT))
LATE = "late-1"


@pytest.fixture
def many(lab: Lab) -> Iterator[None]:
    lab.create(*MANY)
    yield
    lab.remove(*MANY, LATE)


async def test_sixty_nodes_cost_one_list(
    tmp_path: Path, cluster: RealCluster, api: Kube, lab: Lab, gateway: Gateway, many: None
) -> None:
    """IN2."""
    nodes = [node_of(lab, name) for name in MANY]
    url = f"unix://{gateway.socket}"
    cloud = await Started(lab.config(url)).start()
    await cloud.describe(*nodes)
    assert cloud.operations == ["ListInstances", "GetServer"], "the server is their zone"
    began = time.monotonic()
    answers = await cloud.describe(*nodes)
    print(f"a refresh of {COUNT}: {cloud.operations[2:]}, {time.monotonic() - began:.2f} s")
    assert cloud.operations[2:] == ["ListInstances"]
    assert all(isinstance(answer, Instance) for answer in answers.values())
    await cloud.close()

    config = tmp_path / "incus.conf"
    config.write_text(lab.config(url))
    site = Site(api, lab, Where(tmp_path, cluster.kubeconfig("ccm"), config))
    with site.supervisor("one", "--node-monitor-period=60s") as supervisor:
        supervisor.wait_running()
        before, began = len(gateway.calls), time.monotonic()
        await asyncio.gather(*(api.post(NODES, registration(name)) for name in MANY))
        await until("all are initialized", site.are_initialized, LIMIT)
        took = time.monotonic() - began
        calls = Counter(call.path.partition("?")[0] for call in gateway.calls[before:])
        print(f"{COUNT} nodes initialized in {took:.2f} s with {dict(calls)}")
        lists = calls["/1.0/instances"]
        assert lists <= 4, "those that arrive while a list is read share the next"
        await check_a_late_one(site)


async def check_a_late_one(site: Site) -> None:
    """From the start of an instance until its Node, whose kubelet needs no time, is ready."""
    began = time.monotonic()
    await asyncio.to_thread(site.lab.create, LATE)
    there = time.monotonic()
    await site.api.post(NODES, registration(LATE))
    await until("it is initialized", site.are_initialized, LIMIT)
    now = time.monotonic()
    print(f"instance there in {there - began:.2f} s, its Node ready in {now - there:.2f} s more")
