"""A service controller on an API server, reconciled by hand: a test decides what it has seen."""

from dataclasses import dataclass, field, replace

import pytest

from ccm.model.objects import Json
from ccm.model.projection import project
from ccm.model.service import Service
from ccm.model.writes import Delete, Merge, Patch
from tests.service.cloud import Balancers, Provider
from tests.service.world import PATHS, controller_context
from tests.unit.feeding import snapshot
from workers.controller import Result
from workers.performer import Performer
from workers.service.controller import ServiceController

from .servers import ApiServer


@dataclass
class CountingPerformer(Performer):
    """Keeps the writes that were taken."""

    writes: list[Patch | Merge | Delete] = field(default_factory=list)

    async def perform(self, write: Patch | Merge | Delete) -> Json:
        answer = await super().perform(write)
        self.writes.append(write)
        return answer


class Desk:
    """One start of the controller. `see` is its informer, `reconcile` its queue."""

    def __init__(self, server: ApiServer) -> None:
        self._server, self._epoch = server, 0
        self.balancers = Balancers()
        context = controller_context(server.kube, Provider(self.balancers))
        self.performer = CountingPerformer(server.kube, context.performer.permission, grace=5.0)
        self.context = replace(context, performer=self.performer)
        self._controller = ServiceController(self.context, self.balancers)

    async def see(self, of: Service) -> Service:
        """Let the controller see the Service as it is now."""
        raw = await self._server.find(of)
        assert raw
        version = int(raw["metadata"]["resourceVersion"])
        value = project(raw, PATHS["Service"])
        self._epoch += 1
        self.context.store.absorb(snapshot(["Service", of.key, version, value], epoch=self._epoch))
        return Service(raw)

    async def reconcile(self, of: Service) -> Result:
        return await self._controller.reconcile(of.key)


@pytest.fixture
def desk(api_server: ApiServer) -> Desk:
    return Desk(api_server)
