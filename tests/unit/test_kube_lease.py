"""The Lease object, as written to and read from the API server."""

import pytest

from ccm.errors import KubernetesError
from ccm.kube.client import Kube
from ccm.kube.lease import LeaseClient, new_identity
from ccm.model.objects import Json

from .lease_world import ApiServer, Fate, Request, Wire

PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


@pytest.fixture
def leases() -> ApiServer:
    return ApiServer()


@pytest.fixture
def kube(leases: ApiServer) -> Kube:
    return Wire(leases).kube


def client(kube: Kube, identity: str = "one", duration: float = 15.0) -> LeaseClient:
    return LeaseClient(kube, "kube-system", "ccm", identity, duration)


async def test_a_new_lease_is_ours(leases: ApiServer, kube: Kube) -> None:
    record = await client(kube).create(1.0)
    assert (record.holder, record.duration, record.transitions) == ("one", 15.0, 0)
    assert leases.requested == [f"POST {PATH}"]
    assert record == await client(kube, "two").get(1.0)
    assert leases.spec["leaseDurationSeconds"] == 15


async def test_a_renewal_changes_the_time_and_nothing_else(leases: ApiServer, kube: Kube) -> None:
    mine = client(kube)
    first = await mine.create(1.0)
    acquired = leases.spec["acquireTime"]
    second = await mine.update(1.0)
    assert leases.requested[-1] == f"PUT {PATH}/ccm"
    assert second.renewed > first.renewed
    assert (second.holder, second.transitions) == ("one", 0)
    assert leases.spec["acquireTime"] == acquired


async def test_what_others_wrote_into_the_lease_survives(leases: ApiServer, kube: Kube) -> None:
    mine = client(kube)
    await mine.create(1.0)
    assert leases.lease
    leases.lease["metadata"]["annotations"] = {"why": "kept"}
    leases.spec["strategy"] = "OldestEmulationVersion"
    await mine.get(1.0)
    await mine.update(1.0)
    assert leases.lease["metadata"]["annotations"] == {"why": "kept"}
    assert leases.spec["strategy"] == "OldestEmulationVersion"


@pytest.mark.parametrize(
    "spec",
    [{}, None, {"holderIdentity": None, "leaseDurationSeconds": None, "leaseTransitions": "x"}],
)
async def test_a_lease_without_the_usual_fields_can_be_read_and_taken(
    leases: ApiServer, kube: Kube, spec: Json | None
) -> None:
    meta = {"name": "ccm", "namespace": "kube-system", "resourceVersion": "0"}
    leases.lease = {"metadata": meta, "spec": spec}
    mine = client(kube)
    record = await mine.get(1.0)
    assert record
    assert (record.holder, record.duration, record.transitions) == ("", 15.0, 0)
    assert (await mine.update(1.0)).holder == "one"


@pytest.mark.parametrize(("duration", "written"), [(15.0, 15), (14.4, 15), (2.1, 3), (0.2, 1)])
async def test_others_never_wait_for_less_than_the_configured_duration(
    leases: ApiServer, kube: Kube, duration: float, written: int
) -> None:
    await client(kube, duration=duration).create(1.0)
    assert leases.spec["leaseDurationSeconds"] == written


async def test_another_error_is_not_taken_for_a_missing_lease() -> None:
    forbidden = Wire(ApiServer(), [Request(Fate.FORBIDDEN)])
    with pytest.raises(KubernetesError, match="Forbidden"):
        await client(forbidden.kube).get(1.0)


def test_two_starts_on_one_host_have_two_identities() -> None:
    assert new_identity() != new_identity()
