"""What a certificate may not do, the product does not; without rights it deletes nothing."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import Json
from ccm.sandbox.kubelets import ready_condition, registration
from tests.e2e.conftest import api, cluster
from tests.labs.incus.lab import Lab
from tests.providers.incus.test_incus_balancers import ROOT
from tests.providers.incus.test_incus_traffic import LIMIT, SERVICE, Site
from tests.support.environment import NODES, SERVICES
from tests.support.kube.cluster import RealCluster
from tests.support.running import Supervisor, Where, long, until

__all__ = ["api", "cluster"]

pytestmark = [long, pytest.mark.real, pytest.mark.timeout(300)]

STAYS, GOES = "ri-1", "ri-2"


@pytest.fixture
async def site(tmp_path: Path, cluster: RealCluster, api: Kube, lab: Lab) -> AsyncIterator[Site]:
    """With a certificate that tests may exchange."""
    text = lab.config()
    for kind in ("CERT", "KEY"):
        text = text.replace(lab.env[f"INCUS_CLIENT_{kind}"], str(tmp_path / kind))
    config = tmp_path / "incus.conf"
    config.write_text(text)
    lab.create(STAYS, GOES)
    yield Site(api, lab, Where(tmp_path, cluster.kubeconfig("ccm"), config))
    for one in lab.get(ROOT, recursion=1):
        lab.delete(f"{ROOT}/{one['listen_address']}")
    lab.remove(STAYS, GOES)


def certify(site: Site, who: str) -> None:
    """Give the product this certificate; a client reads a pair that fits."""
    for kind in ("KEY", "CERT"):
        new = site.where.directory / f"new.{kind}"
        shutil.copy(site.lab.env[f"INCUS_{who}_{kind}"], new)
        new.replace(site.where.directory / kind)


def elsewhere(lab: Lab) -> Json:
    """What there is in projects that are not the product's."""
    return {
        "bridged": [
            (one["name"], one["config"], one["devices"])
            for one in lab.get("/instances", "bridged", recursion=1)
        ],
        "networks": [
            (one["name"], one["config"])
            for one in lab.get("/networks", "default", recursion=1)
            if one["managed"]
        ],
        "forwards": lab.get("/networks/incusbr0/forwards", "default", recursion=1),
    }


def passes(supervisor: Supervisor) -> int:
    """How often the node worker has been refused by the cloud."""
    calls = supervisor.workers()["node-0"].get("cloud_calls", {})
    return sum(count for name, count in calls.items() if "denied" in name)


async def test_without_rights_nothing_is_deleted(site: Site) -> None:
    """IN18, IN4: as one whose certificate an administrator takes away."""
    before = elsewhere(site.lab)
    certify(site, "CLIENT")
    with site.supervisor("one") as supervisor:
        for name in (STAYS, GOES):
            await site.api.post(NODES, registration(name))
        await until("nodes are initialized", site.are_initialized, LIMIT)
        await site.api.post(SERVICES, SERVICE)
        await until("the Service has its addresses", site.addresses, LIMIT)
        await site.are_backends(STAYS, GOES)
        balancers = site.lab.get(ROOT, recursion=1)

        certify(site, "OTHER")
        site.lab.remove(GOES)
        status = {"status": {"conditions": [ready_condition(False)]}}
        for name in (STAYS, GOES):
            await site.api.patch(f"{NODES}/{name}/status", MERGE_PATCH, status)
        await until("it is refused again and again", lambda: passes(supervisor) > 4, LIMIT)
        assert (await site.nodes()).keys() == {STAYS, GOES}
        assert site.lab.get(ROOT, recursion=1) == balancers

        certify(site, "CLIENT")

        async def is_gone() -> bool:
            return (await site.nodes()).keys() == {STAYS}

        await until("the deleted one is gone, and no other", is_gone, LIMIT)
        await site.are_backends(STAYS)
        await site.api.request("DELETE", f"{SERVICES}/web")
        await until("nothing is left", lambda: not site.lab.get(ROOT), LIMIT)
    assert elsewhere(site.lab) == before
