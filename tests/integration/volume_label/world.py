"""A volume-label controller with a cloud of volumes, on a cluster in memory or an API server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from ccm.kube.client import Kube
from tests.support.cloud import Inventory
from tests.support.context import SETTINGS
from tests.support.world import InventoryWorld
from workers.volume_label import controller as module
from workers.volume_label.controller import VolumeLabelController

from .volumes import DRIVER


class World(InventoryWorld):
    """One volume-label controller, and the places of the volumes of its cloud."""

    KEY = "pv-1"
    controller: VolumeLabelController

    def __init__(self, kube: Kube | None, **flags: Any) -> None:
        places = self.places = Inventory()
        places.csi_drivers, places.legacy_sources = frozenset({DRIVER}), frozenset({"cinder"})
        settings = replace(SETTINGS, **flags)
        super().__init__(module, "volumes", places, kube=kube, settings=settings)


@asynccontextmanager
async def world(kube: Kube | None = None, **flags: Any) -> AsyncIterator[World]:
    """A world whose parts run until the end of the block."""
    async with World(kube, **flags).running() as made:
        yield made
