"""A service duty on an API server, reconciled by hand: a test decides what it has seen."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from ccm.bus.in_flight import InFlightJournal
from ccm.bus.sockets import Permission
from ccm.cloud.interface import CloudProvider
from ccm.kube.client import Kube
from ccm.kube.events import EventRecorder
from ccm.model.objects import Json
from ccm.model.projection import project
from ccm.model.service import Service
from ccm.settings import Settings
from tests.service.cloud import Balancers, Provider
from tests.unit.feeding import snapshot
from workers.controller import ControllerContext, Result
from workers.performer import Delete, Merge, Patch, Performer
from workers.quarantine import Quarantine
from workers.queue import WorkQueue
from workers.service.controller import BACKOFF, COMPONENT, PROJECTIONS, ServiceController
from workers.store import Store

from .servers import ApiServer


@dataclass
class Counting(Performer):
    """Keeps the writes that were taken."""

    writes: list[Patch | Merge | Delete] = field(default_factory=list)

    async def perform(self, write: Patch | Merge | Delete) -> Json:
        answer = await super().perform(write)
        self.writes.append(write)
        return answer


class Desk:
    """One start of the duty. `see` is its feed, `reconcile` its queue."""

    def __init__(self, server: ApiServer, hand: InFlightJournal) -> None:
        self._server, self._epoch = server, 0
        self.balancers, self.store = Balancers(), Store(PROJECTIONS)
        self.performer = _performer(server.kube)
        tools = ControllerContext(
            settings=Settings(cloud_provider="fake"),
            provider=cast(CloudProvider, Provider(self.balancers)),
            store=self.store,
            queue=WorkQueue(BACKOFF),
            quarantine=Quarantine(hand, lambda _: True, (), {}),
            performer=self.performer,
            recorder=EventRecorder(server.kube, COMPONENT, "service"),
            send=lambda _: True,
        )
        self._duty = ServiceController(tools, self.balancers)

    async def see(self, of: Service) -> Service:
        """Let the duty see the Service as it is now."""
        raw = await self._server.find(of)
        assert raw
        version = int(raw["metadata"]["resourceVersion"])
        value = project(raw, PROJECTIONS[0].paths)
        self._epoch += 1
        self.store.absorb(snapshot(["Service", of.key, version, value], epoch=self._epoch))
        return Service(raw)

    async def reconcile(self, of: Service) -> Result:
        return await self._duty.reconcile(of.key)


def _performer(kube: Kube) -> Counting:
    permission = Permission()
    permission.renew(float("inf"))
    return Counting(kube, permission, grace=5.0)


@pytest.fixture
def desk(api_server: ApiServer, tmp_path: Path) -> Iterator[Desk]:
    hand = InFlightJournal(tmp_path / "hand")
    yield Desk(api_server, hand)
    hand.close()
