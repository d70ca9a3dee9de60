"""The whole product on a real API server and the server: Nodes, ten Services, routes, a volume."""

from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from ccm.kube.client import Kube
from ccm.providers.gce.lb.request import GLOBAL_ACCESS, TIER, TYPE
from ccm.providers.gce.volumes import CSI_DRIVER
from tests.e2e.conftest import api, cluster
from tests.labs.gce.project import PROJECT, ZONES
from tests.labs.gce.server import Gce
from tests.providers.gce.adapter import config_of
from tests.providers.gce.balancers import left
from tests.providers.whole import (
    LOCAL,
    RANGES,
    STICKY,
    TWO_PORTS,
    UDP,
    WholeCloud,
    check_all,
    grant,
)
from tests.support.kube.cluster import RealCluster

__all__ = ["api", "cluster"]

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[3] / "docs" / "providers" / "gce.md"
INNER = {TYPE: "Internal"}


class WholeGce(WholeCloud):
    """One project."""

    provider, driver, looked_at = "gce", CSI_DRIVER, "forwardingRules.list"
    services = {
        "plain": ({}, {}),
        "two-ports": ({}, TWO_PORTS),
        "udp": ({}, UDP),
        "local": ({}, LOCAL),
        "sticky": ({}, STICKY),
        "ranges": ({}, RANGES),
        "standard": ({TIER: "Standard"}, {}),
        "inner": (INNER, {}),
        "inner-local": (INNER, LOCAL),
        "inner-global": (INNER | {GLOBAL_ACCESS: "true"}, TWO_PORTS),
    }

    def __init__(self, api: Kube, cluster: RealCluster, gce: Gce, folder: Path) -> None:
        self.gce, config = gce, folder / "gce.conf"
        config.write_text(config_of(gce))
        super().__init__(api, cluster, config)

    def add_machine(self, name: str) -> None:
        self.gce.cloud.add_instance(name, ZONES[int(name.rpartition("-")[2]) % 3])

    def delete_machine(self, name: str) -> None:
        objects = self.gce.cloud.objects
        (path,) = [one for one in objects if one.endswith(f"/instances/{name}")]
        del objects[path]

    def add_disk(self) -> tuple[str, str]:
        return self.gce.cloud.add_disk("data", ZONES[1:2]), ZONES[1]

    def routes(self) -> Collection[str]:
        return self.gce.cloud.named("routes")

    def calls(self) -> Sequence[str]:
        return self.gce.names()

    def writes(self) -> Sequence[str]:
        return self.gce.writes()

    def forget_calls(self) -> None:
        self.gce.calls.clear()

    def left(self) -> Sequence[str]:
        return left(self.gce)


async def test_a_cluster_is_served_and_leaves_nothing_behind(
    api: Kube, cluster: RealCluster, gce: Gce, tmp_path: Path
) -> None:
    """GC1, GC6, GC22, GC41, GC42, GC46, GC59 with the whole product."""
    await grant(api, PAGE, "ingress-uid")
    whole = WholeGce(api, cluster, gce, tmp_path)
    assert PROJECT in whole.where.cloud_config.read_text()
    await check_all(whole)
