"""The whole product on a real API server and the lab: 30 Nodes, 10 Services, routes, a volume."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ccm.kube.client import Kube
from ccm.providers.azure.balancer_configs import KEY
from ccm.providers.azure.lb.annotations import PREFIX
from ccm.providers.azure.volumes import CSI_DRIVER
from tests.e2e.conftest import api, cluster
from tests.labs.azure.lab import NSG, REGION, SUBNET, TABLE, Lab, path_of
from tests.providers.whole import (
    LOCAL,
    RANGES,
    STICKY,
    TWO_PORTS,
    UDP,
    WholeCloud,
    check_all,
)
from tests.support.kube.cluster import RealCluster

__all__ = ["api", "cluster"]

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

INNER = {f"{PREFIX}load-balancer-internal": "true"}


class WholeAzure(WholeCloud):
    """One resource group."""

    provider, driver, looked_at = "azure", CSI_DRIVER, "/loadBalancers"
    services = {
        "plain": ({}, {}),
        "two-ports": ({}, TWO_PORTS),
        "udp": ({}, UDP),
        "local": ({}, LOCAL),
        "sticky": ({}, STICKY),
        "ranges": ({}, RANGES),
        "label": ({f"{PREFIX}dns-label-name": "whole-cluster"}, {}),
        "inner": (INNER, {}),
        "inner-subnet": (INNER | {f"{PREFIX}load-balancer-internal-subnet": SUBNET}, TWO_PORTS),
        "inner-local": (INNER, LOCAL),
    }

    def __init__(
        self, api: Kube, cluster: RealCluster, lab: Lab, folder: Path, **more: Any
    ) -> None:
        self.lab, config = lab, folder / "azure.json"
        config.write_text(lab.config(nodeInstanceNotFoundGracePeriodInSeconds=0, **more))
        super().__init__(api, cluster, config)

    def add_machine(self, name: str) -> None:
        self.lab.add_machine(name)

    def delete_machine(self, name: str) -> None:
        self.lab.delete_machine(path_of("virtualMachines", name))
        self.lab.delete("networkInterfaces", f"{name}-nic")

    def add_disk(self) -> tuple[str, str]:
        made = self.lab.put("disks", "data", {"zones": ["2"], "properties": {"diskSizeGB": 1}})
        return str(made["id"]), f"{REGION}-2"

    def routes(self) -> Collection[str]:
        table = self.lab.get("routeTables", TABLE)["properties"]
        return [one["name"] for one in table.get("routes", ())]

    def calls(self) -> Sequence[str]:
        return [f"{one['method']} {one['path']}" for one in self.lab.calls()]

    def writes(self) -> Sequence[str]:
        return self.lab.writes()

    def forget_calls(self) -> None:
        self.lab.forget_calls()

    def left(self) -> Sequence[str]:
        group = self.lab.get("networkSecurityGroups", NSG)["properties"].get("securityRules", [])
        made = [
            one for kind in ("loadBalancers", "publicIPAddresses") for one in self.lab.objects(kind)
        ]
        return [*made, *(one["name"] for one in group)]


SEVERAL = {
    "loadBalancerBackendPoolConfigurationType": "nodeIP",
    KEY: [{"name": name, "primaryVMSet": name} for name in ("kubernetes", "second", "third")],
}


@pytest.mark.parametrize("more", [{}, SEVERAL], ids=["one", "several"])
async def test_a_cluster_is_served_and_leaves_nothing_behind(
    api: Kube, cluster: RealCluster, lab: Lab, tmp_path: Path, more: Mapping[str, Any]
) -> None:
    """AZ1, AZ7, AZ22, AZ23, AZ30, AZ36, AZ50, AZ53, AZ54, AZ71 with the whole product."""
    await check_all(WholeAzure(api, cluster, lab, tmp_path, **more))
