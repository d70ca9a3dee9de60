"""Rows of a Service's finalizer and status, as the writes that an API server takes."""

from collections.abc import AsyncIterator

import pytest

from ccm.errors import KubernetesError, NotShown
from ccm.kube.client import MERGE_PATCH, Kube
from ccm.model.objects import Json
from ccm.model.service import FINALIZER, Service
from tests.integration.service.objects import (
    finalized,
    service,
    spec,
    with_status,
)
from tests.integration.service.world import World
from tests.support.nodes import Tweak, with_finalizer
from tests.support.rows import row

from .servers import SERVICES, ApiServer

ADDRESS = "192.0.2.1"  # of the first balancer that the cloud makes
THEIRS = "example.com/theirs"


class Desk(World):
    """One start of the controller. `see` is its informer, `reconcile` its queue."""

    def __init__(self, server: ApiServer) -> None:
        self.kube, self._server = Kube(server.kube.config, "desk"), server
        super().__init__(kube=self.kube)

    async def see(self, of: Service) -> Service:
        """Let the controller see the Service as it is now."""
        raw = await self._server.find(of)
        assert raw
        self.feed(Service(raw))
        return Service(raw)


@pytest.fixture
async def desk(api_server: ApiServer) -> AsyncIterator[Desk]:
    desk = Desk(api_server)
    yield desk
    await desk.kube.close()


def over(protocol: str) -> Tweak:
    """Leaves its node port to the API server."""
    return spec(ports=[{"port": 53, "protocol": protocol}])


def wanting(*tweaks: Tweak) -> Service:
    return service(over("TCP"), *tweaks)


async def found(api_server: ApiServer, of: Service) -> Service:
    raw = await api_server.find(of)
    assert raw
    return Service(raw)


def addresses(of: Service) -> list[str]:
    return [way["ip"] for way in of.ingress]


async def change(api_server: ApiServer, of: Service, body: Json, part: str = "") -> None:
    """What someone else does to it."""
    await api_server.kube.patch(f"{SERVICES}/{of.name}{part}", MERGE_PATCH, body)


async def provided(api_server: ApiServer, desk: Desk, *tweaks: Tweak) -> Service:
    """A Service after its first reconcile."""
    made = await api_server.service(wanting(*tweaks))
    await desk.see(made)
    if made.ingress:  # what is published and not found is looked for once more
        with pytest.raises(NotShown):
            await desk.reconcile(made.key)
        desk.balancers.calls.clear()
    assert (await desk.reconcile(made.key)).is_done
    return await found(api_server, made)


@row("SV3")
async def test_a_service_of_another_type_loses_balancer_status_and_finalizer(
    api_server: ApiServer, desk: Desk
) -> None:
    made = await provided(api_server, desk)
    await change(api_server, made, {"spec": {"type": "ClusterIP"}})
    await desk.see(made)
    await desk.reconcile(made.key)
    after = await found(api_server, made)
    assert (after.finalizers, after.ingress, desk.balancers.records) == ([], [], {})
    assert desk.kube.writes == 2 + 1  # the API server has cleared the status itself


@row("SV4")
async def test_a_service_being_deleted_goes_with_its_balancer(
    api_server: ApiServer, desk: Desk
) -> None:
    made = await provided(api_server, desk)
    await api_server.kube.request("DELETE", f"{SERVICES}/{made.name}")
    assert (await desk.see(made)).is_being_deleted
    await desk.reconcile(made.key)
    assert await api_server.find(made) is None
    assert desk.balancers.records == {}
    assert desk.kube.writes == 2 + 2


@row("SV5")
async def test_a_status_that_someone_wrote_meanwhile_is_not_overwritten_unseen(
    api_server: ApiServer, desk: Desk
) -> None:
    made = await api_server.service(wanting(finalized))
    await desk.see(made)
    theirs = {"loadBalancer": {"ingress": [{"ip": "192.0.2.99"}]}}
    await change(api_server, made, {"status": theirs}, "/status")
    with pytest.raises(KubernetesError) as race:
        await desk.reconcile(made.key)
    assert race.value.is_race
    assert addresses(await found(api_server, made)) == ["192.0.2.99"]
    await desk.see(made)
    await desk.reconcile(made.key)
    assert addresses(await found(api_server, made)) == [ADDRESS]
    assert len(desk.balancers.calls) == 1


@pytest.mark.parametrize(
    ("tweaks", "finalizers", "writes"),
    [
        pytest.param([over("TCP")], [FINALIZER], 2, id="SV2-SV13-absent"),
        pytest.param([over("UDP")], [FINALIZER], 2, id="SV2-UDP"),
        pytest.param([finalized], [FINALIZER], 1, id="SV13-present"),
        pytest.param([finalized, with_status("192.0.2.9")], [FINALIZER], 1, id="SV14-new"),
        pytest.param([finalized, with_status(ADDRESS)], [FINALIZER], 0, id="SV14-equal"),
        pytest.param([with_finalizer(THEIRS)], [THEIRS, FINALIZER], 2, id="SV16"),
    ],
)
async def test_a_new_balancer_is_one_ensure_and_only_differences_are_written(
    api_server: ApiServer, desk: Desk, tweaks: list[Tweak], finalizers: list[str], writes: int
) -> None:
    after = await provided(api_server, desk, *tweaks)
    assert (after.finalizers, addresses(after)) == (finalizers, [ADDRESS])
    assert len(desk.balancers.calls) == 1
    assert desk.kube.writes == writes
    await desk.see(after)
    await desk.reconcile(after.key)
    assert desk.kube.writes == writes


@row("SV15")
async def test_what_others_wrote_since_we_looked_survives(
    api_server: ApiServer, desk: Desk
) -> None:
    made = await api_server.service(wanting())
    await desk.see(made)
    theirs = {"metadata": {"annotations": {"theirs": "kept"}}, "spec": {"selector": {"a": "b"}}}
    await change(api_server, made, theirs)
    before = await found(api_server, made)
    await desk.reconcile(made.key)
    after = await found(api_server, made)
    assert after.annotations == {"theirs": "kept"}
    assert (after.finalizers, addresses(after)) == ([FINALIZER], [ADDRESS])
    assert after.spec == before.spec
