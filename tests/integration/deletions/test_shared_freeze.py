"""The freeze in the Lease: written whoever holds it, read by every replica, lifted on any."""

import orjson
import pytest

from ccm.errors import KubernetesError
from ccm.kube.client import Kube
from ccm.kube.lease import LeaseClient
from ccm.supervisor.deletion_state import Freeze
from ccm.supervisor.freeze import FROZEN, SharedFreeze
from tests.unit.lease_world import ApiServer, Wire

AUDIT = Freeze("audit", "ada", "2026-05-04T03:00:00+00:00")


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


@pytest.fixture
def kube(server: ApiServer) -> Kube:
    return Wire(server).kube


def lease_of(kube: Kube, identity: str) -> LeaseClient:
    return LeaseClient(kube, "ns", "ccm", identity, 15.0)


async def test_a_freeze_from_a_standby_stops_the_holder_at_its_next_renewal(kube: Kube) -> None:
    holder, standby = lease_of(kube, "one"), lease_of(kube, "two")
    await holder.create(1.0)
    await standby.get(1.0)
    await SharedFreeze(kube, standby).set(AUDIT)
    assert SharedFreeze(kube, standby).get() == AUDIT
    with pytest.raises(KubernetesError) as conflict:
        await holder.update(1.0)
    assert conflict.value.status == 409, "a holder that has not read it renews nothing"
    record = await holder.get(1.0)
    assert record
    assert record.holder == "one"
    assert SharedFreeze(kube, holder).get() == AUDIT
    await holder.update(1.0)
    await SharedFreeze(kube, standby).set(None)
    await holder.get(1.0)
    assert SharedFreeze(kube, holder).get() is None


async def test_a_freeze_outlives_the_release_and_the_loss_of_the_lease(
    kube: Kube, server: ApiServer
) -> None:
    one, two = lease_of(kube, "one"), lease_of(kube, "two")
    await one.create(1.0)
    await SharedFreeze(kube, one).set(AUDIT)
    await one.get(1.0)
    await one.release(1.0)
    await two.get(1.0)
    await two.update(1.0)
    assert SharedFreeze(kube, two).get() == AUDIT
    server.lease = None
    assert await two.get(1.0) is None
    await two.create(1.0)
    three = lease_of(kube, "three")
    await three.get(1.0)
    assert SharedFreeze(kube, three).get() == AUDIT


@pytest.mark.parametrize("value", ["an upgrade", "null", "{}", '{"why": 3}', "[", "true"])
async def test_any_value_that_someone_wrote_is_a_freeze(kube: Kube, value: str) -> None:
    lease = lease_of(kube, "one")
    lease.annotations = {FROZEN: value}
    found = SharedFreeze(kube, lease).get()
    assert found
    assert found.why == value
    assert orjson.dumps(found)


async def test_a_freeze_that_cannot_be_written_raises(kube: Kube) -> None:
    with pytest.raises(KubernetesError) as missing:
        await SharedFreeze(kube, lease_of(kube, "one")).set(AUDIT)
    assert missing.value.status == 404
