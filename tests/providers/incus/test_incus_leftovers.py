"""A cluster comes and goes on the lab: pods are reached meanwhile, and nothing of it is left."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import Json
from ccm.sandbox.kubelets import pod_network, ready_condition, registration
from tests.e2e.conftest import api, cluster
from tests.labs.incus.lab import Lab
from tests.providers.incus.adapter import DRIVER, VOLUMES, disk_spec
from tests.providers.incus.test_incus_balancers import ROOT
from tests.providers.incus.test_incus_routes import REPLUG, is_answered
from tests.providers.incus.test_incus_traffic import LIMIT, SERVICE, Site
from tests.support.environment import NODES, SERVICES
from tests.support.kube.cluster import RealCluster
from tests.support.running import Where, long, until, until_none

__all__ = ["api", "cluster"]

pytestmark = [long, pytest.mark.real, pytest.mark.timeout(600)]

NAMES = ("lo-1", "lo-2")
OTHER = "node-1"  # stays to the end: a cluster without any Node proves nothing about routes
VOLUME, PVS = "lo-data", "/api/v1/persistentvolumes"
ROUTES = ("--configure-cloud-routes", "--cluster-cidr=10.244.0.0/16")


@pytest.fixture
async def site(tmp_path: Path, cluster: RealCluster, api: Kube, lab: Lab) -> AsyncIterator[Site]:
    config = tmp_path / "incus.conf"
    config.write_text(lab.config(more=f"{REPLUG}\n[Volumes]\ncsi-driver = {DRIVER}"))
    lab.create(*NAMES)
    lab.call("POST", VOLUMES, {"name": VOLUME, "type": "custom"})
    yield Site(api, lab, Where(tmp_path, cluster.kubeconfig("ccm"), config))
    lab.delete(f"{VOLUMES}/{VOLUME}")
    lab.remove(*NAMES)


def traces(lab: Lab) -> list[Json]:
    """All that we may have written, and what of an instance a route changes."""
    instances = lab.get("/instances", recursion=1)
    marks = [
        {key: one["config"][key] for key in one["config"] if "ccm" in key} for one in instances
    ]
    nics = [{one["name"]: one["expanded_devices"]} for one in instances]
    return [*lab.get(ROOT, recursion=1), lab.get(f"{VOLUMES}/{VOLUME}"), *nics, *marks]


async def test_nothing_is_left_when_everything_is_deleted(site: Site) -> None:
    before = traces(site.lab)
    pods = {name: pod_network(name).replace("0/24", "5") for name in NAMES}
    with site.supervisor("one", *ROUTES):
        for name in NAMES:
            await site.api.post(NODES, registration(name, pod_network(name)))
        await site.api.post(NODES, registration(OTHER))
        await site.api.post(SERVICES, SERVICE)
        claim = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
        spec = {**claim, **disk_spec(DRIVER, VOLUME)}
        await site.api.post(PVS, {"metadata": {"name": VOLUME}, "spec": spec})
        await until("the Service has its addresses", site.addresses, LIMIT)
        await site.are_backends(*NAMES, OTHER)
        await until("the volume has its zone", lambda: zone_of(site.api), LIMIT)
        await until("routes are there", lambda: routed(site.lab) == {*NAMES}, LIMIT)
        site.lab.set_state(NAMES, "start")
        for name, address in pods.items():
            site.lab.run("pod", name, address)
        for who, address in zip(NAMES, reversed(pods.values()), strict=True):
            reached = partial(is_answered, site.lab, who, address)
            await until(f"pod {address} answers {who}", reached, LIMIT)
        await delete_all(site)

        async def left() -> list[Json]:
            return [one for one in traces(site.lab) if one not in before]

        await until_none("left", left, LIMIT)
    assert traces(site.lab) == before


def routed(lab: Lab) -> set[str]:
    found = {name: lab.instance(name)["expanded_devices"]["eth0"] for name in NAMES}
    return {name for name, nic in found.items() if "ipv4.routes" in nic}


async def zone_of(api: Kube) -> str:
    labels = (await api.get(f"{PVS}/{VOLUME}"))["metadata"].get("labels") or {}
    return str(labels.get("topology.kubernetes.io/zone", ""))


async def delete_all(site: Site) -> None:
    """The Service, the volume, and the Nodes, whose instances go on for others."""
    await site.api.request("DELETE", f"{SERVICES}/web")
    await site.api.request("DELETE", f"{PVS}/{VOLUME}")
    for name in NAMES:
        status = {"status": {"conditions": [ready_condition(False)]}}
        await site.api.patch(f"{NODES}/{name}/status", MERGE_PATCH, status)
        await site.api.request("DELETE", f"{NODES}/{name}")
    await asyncio.to_thread(site.lab.set_state, NAMES, "start")
