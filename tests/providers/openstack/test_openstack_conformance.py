"""The conformance kit against the lab; what needs an amphora takes seconds each, so in parts."""

from pathlib import Path

import pytest

from tests.labs.openstack.lab import Lab
from tests.proc.running import long
from tests.testkit.kit_run import run_pytest

pytestmark = [long, pytest.mark.timeout(7200)]

BALANCERS = "Ensure or Change or UpdateHosts or Delete- or Get- or Owned- or Get] or Owned]"
PARTS = {
    "nodes, routes and volumes": "test_instances or test_routes or test_volumes",
    "their failures": f"(test_failures or test_provider) and not ({BALANCERS})",
    "load balancers": "test_load_balancers or test_service_changes",
    "failures of load balancers": f"(test_failures or test_provider) and ({BALANCERS})",
}
SKIPPED = {
    "servers carry no mark of a cluster",
    "what leads a Node's network to it without a mark is upstream's route",
    "the adapter names no SDK",
}


@pytest.mark.parametrize("part", PARTS)
def test_the_provider_passes_the_kit(lab: Lab, tmp_path: Path, part: str) -> None:
    adapter = "--adapter=tests.providers.openstack.adapter:OpenStackAdapter"
    kit = ("--pyargs", "ccm.cloud.testkit", "--provider=openstack", adapter)
    run = run_pytest(tmp_path, *kit, "-k", PARTS[part], timeout=7000)
    assert run.code == 0, run.output[-8000:]
    assert run.count("passed") > 0
    assert {reason.partition(": ")[2] for reason in run.skipped()} <= SKIPPED
