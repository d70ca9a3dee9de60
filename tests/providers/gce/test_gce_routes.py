"""Routes by upstream's names: whose they are, what replaces them, and why there is none."""

import time
from typing import Any

import pytest

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.harness import uid_of
from ccm.cloud.testkit.test_untrusted import CPU_SECONDS
from ccm.errors import CloudError, NoRoom, Refused
from ccm.model.cloud import Gone, Unknown, VolumePlace
from ccm.model.volume import PersistentVolume
from ccm.providers.gce.api import Aggregated
from ccm.providers.gce.routes import DESCRIPTION
from ccm.providers.gce.volumes import CSI_DRIVER
from tests.labs.gce.project import PROJECT, REGION, ZONES
from tests.labs.gce.server import Gce
from tests.providers.gce.adapter import GceAdapter, machine_of
from tests.providers.gce.conftest import Started, host

CIDR = "10.244.1.0/24"


def add_route(gce: Gce, name: str, cidr: str, to: Any) -> None:
    adapter = GceAdapter()
    adapter.gce = gce
    adapter.add_route(name, cidr, machine_of(to), DESCRIPTION)


async def test_only_routes_of_the_clusters_name_are_ours(gce: Gce, cloud: Started) -> None:
    """GC54: a cluster whose name begins with ours and a dash has others."""
    one = gce.cloud.add_instance("one")
    add_route(gce, f"kit-{uid_of('one')}", CIDR, one)
    add_route(gce, f"kit-b-{uid_of('other')}", "10.244.2.0/24", one)
    add_route(gce, f"kit-{uid_of('gone')}", "10.244.3.0/24", one)
    assert cloud.routes
    found = await cloud.routes.list([host(one)])  # type: ignore[misc]
    assert [(route.cidr, route.node, route.is_marked) for route in found] == [
        ("10.244.3.0/24", "one", False),
        (CIDR, "one", True),
    ]


async def test_a_route_that_leads_elsewhere_is_replaced(gce: Gce, cloud: Started) -> None:
    """GC53: the Node's machine is another one now."""
    old, new = gce.cloud.add_instance("old"), gce.cloud.add_instance("one", ZONES[1])
    add_route(gce, f"kit-{uid_of('one')}", CIDR, old)
    assert cloud.routes
    await cloud.routes.create(host(new), CIDR)  # type: ignore[misc]
    (route,) = gce.cloud.named("routes").values()
    assert route["nextHopInstance"] == new["selfLink"]


async def test_an_instance_that_drops_packets_is_reported(gce: Gce, cloud: Started) -> None:
    """GC55: the route is there, as upstream makes it."""
    one = gce.cloud.add_instance("one", canIpForward=False)
    assert cloud.routes
    with pytest.raises(CloudError, match=r"instance one .*canIpForward"):
        await cloud.routes.create(host(one), CIDR)  # type: ignore[misc]
    assert len(gce.cloud.named("routes")) == 1
    await cloud.routes.create(host(one), CIDR)  # type: ignore[misc]


async def test_an_empty_object_is_no_empty_list(gce: Gce, cloud: Started) -> None:
    """Else all routes would be made again."""
    gce.is_down = {"status": 200, "text": "{}"}
    assert cloud.routes
    with pytest.raises(CloudError, match="not Google's"):
        await cloud.routes.list([])  # type: ignore[misc]


async def test_a_full_quota_of_routes_is_said(gce: Gce, cloud: Started) -> None:
    """GC56: and the others go on."""
    one, other = (host(gce.cloud.add_instance(name)) for name in ("one", "other"))
    gce.fault("routes.insert", when="operation", status=403, reason="QUOTA_EXCEEDED")
    assert cloud.routes
    with pytest.raises(NoRoom, match="QUOTA_EXCEEDED"):
        await cloud.routes.create(one, CIDR)  # type: ignore[misc]
    await cloud.routes.create(other, CIDR)  # type: ignore[misc]
    with pytest.raises(Refused, match=f"{CIDR} is routed by"):
        await cloud.routes.create(one, CIDR)  # type: ignore[misc]


@pytest.mark.parametrize("zones", [ZONES[:1], ZONES[:2]])
@pytest.mark.parametrize("names_project", [True, False])
async def test_a_disk_is_where_its_replicas_are(
    gce: Gce, cloud: Started, zones: tuple[str, ...], names_project: bool
) -> None:
    path = gce.cloud.add_disk("disk", zones)
    handle = path if names_project else path.replace(PROJECT, "UNSPECIFIED")
    volumes = {
        "csi": {"csi": {"driver": "pd.csi.storage.gke.io", "volumeHandle": handle}},
        "legacy": {"gcePersistentDisk": {"pdName": "disk"}},
        "other": {"csi": {"driver": "pd.csi.storage.gke.io", "volumeHandle": f"{path}-x"}},
        "foreign": {
            "csi": {
                "driver": "pd.csi.storage.gke.io",
                "volumeHandle": "projects/other/zones/europe-west1-b/disks/disk",
            }
        },
    }
    asked = [PersistentVolume({"metadata": {"name": n}, "spec": s}) for n, s in volumes.items()]
    assert cloud.volumes
    answers = dict(await cloud.volumes.describe(asked))  # type: ignore[misc]
    place = VolumePlace(zones, REGION)
    assert (answers["csi"], answers["legacy"]) == (place, place)
    assert isinstance(answers["other"], Gone)
    assert isinstance(answers["foreign"], Unknown)
    alone = await cloud.volumes.describe(asked[:1])  # type: ignore[misc]
    assert alone["csi"] == place


async def test_many_volumes_of_a_project_with_many_disks_cost_no_time(
    cloud: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant may claim any number of volumes: each was compared with all disks."""
    disks = [{"name": f"disk-{at}", "zone": f"x/{ZONES[0]}"} for at in range(50_000)]
    listed = Aggregated({f"zones/{ZONES[0]}": disks}, {})

    async def aggregated(*_: object) -> Aggregated:
        return listed

    monkeypatch.setattr("ccm.providers.gce.api.GceApi.aggregated", aggregated)
    handle = f"projects/{PROJECT}/zones/{ZONES[0]}/disks/disk"
    asked = [
        PersistentVolume(
            {
                "metadata": {"name": f"pv-{at}"},
                "spec": {"csi": {"driver": CSI_DRIVER, "volumeHandle": f"{handle}-{at}"}},
            }
        )
        for at in range(1000)
    ]
    assert cloud.volumes
    began = time.process_time()
    answers = await invoke(cloud.volumes.describe, asked)
    assert time.process_time() - began < CPU_SECONDS
    assert {*answers.values()} == {VolumePlace(ZONES[:1], REGION)}
