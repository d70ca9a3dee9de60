"""No Pod of ours waits for a taint that only its own work takes away."""

import pytest

from ccm.manifests.workload import Workload, workload
from ccm.model.objects import SHUTDOWN_TAINT, UNINITIALIZED_TAINT
from ccm.settings import Settings

NETWORK_UNAVAILABLE = "node.kubernetes.io/network-unavailable"


@pytest.mark.parametrize("kind", ["daemonset", "deployment"])
@pytest.mark.parametrize("taint", [UNINITIALIZED_TAINT, SHUTDOWN_TAINT, NETWORK_UNAVAILABLE])
def test_pods_tolerate_what_only_the_product_takes_away(kind: str, taint: str) -> None:
    wanted = Workload(kind, "kube-system", "ccm-supervisor:1", 1, "cloud-config", {}, ())
    (manifest,) = workload(wanted, Settings())
    tolerations = manifest.body["spec"]["template"]["spec"]["tolerations"]
    assert {"key": taint, "operator": "Exists"} in tolerations
