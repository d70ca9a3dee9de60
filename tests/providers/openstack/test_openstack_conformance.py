"""The conformance kit against labs, with quick load balancers where they will do, in parts."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.testkit.kit_run import ON_EMULATORS, check_kit
from tests.labs.openstack.lab import HERE, MISSING, Lab, is_installed, is_running
from tests.support.needed import needed
from tests.support.running import long

pytestmark = [long, pytest.mark.timeout(7200)]

BALANCERS = "Ensure or Change or UpdateNodes or Delete- or Get- or Owned- or Get] or Owned]"
# With `split` the port of a VIP stays behind, and with it what leads to a floating IP.
DELETION = "test_it_converges_from_wherever_it_was_broken_off and Delete-"
SPLIT, NOVA = "split", "nova"
PARTS = {
    "nodes, routes and volumes": (SPLIT, "test_instances or test_routes or test_volumes"),
    "their failures": (SPLIT, f"(test_failures or test_provider) and not ({BALANCERS})"),
    "credentials and texts": (
        SPLIT,
        f"(test_credentials or test_untrusted) and not ({ON_EMULATORS})",
    ),
    "load balancers": (SPLIT, "test_load_balancers or test_service_changes"),
    "failures of load balancers": (
        SPLIT,
        f"(test_failures or test_provider) and ({BALANCERS}) and not ({DELETION})",
    ),
    "broken off deletions of load balancers": (NOVA, DELETION),
}
SKIPPED = {
    "what leads a Node's network to it without a mark is upstream's route",
    "the adapter names no SDK",
    "this provider reads each load balancer by itself",
}
OWN_LAB = {"OSLAB_STATE": f"/tmp/ccm-openstack-kit-{os.getuid()}", "OSLAB_PORT_BASE": "15020"}


@pytest.fixture(scope="module")
def octavia(request: pytest.FixtureRequest) -> Iterator[None]:
    """A lab with this `OSLAB_OCTAVIA`: the one that runs, or else one of our own."""
    needed(is_installed(), MISSING)
    if is_running() and Lab().is_split is (request.param == SPLIT):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**OWN_LAB, "OSLAB_OCTAVIA": request.param}.items():
            patch.setenv(name, value)
        subprocess.run([HERE / "lab.sh", "up"], check=True, stdout=subprocess.DEVNULL)
        try:
            yield
        finally:
            subprocess.run([HERE / "lab.sh", "wipe"], check=True)


@pytest.mark.usefixtures("octavia")
@pytest.mark.parametrize(
    ("octavia", "tests"), PARTS.values(), ids=PARTS.keys(), indirect=["octavia"]
)
def test_the_provider_passes_the_kit(tmp_path: Path, tests: str) -> None:
    adapter = "openstack.adapter:OpenStackAdapter"
    check_kit(tmp_path, adapter, SKIPPED, "-k", tests, timeout=7000)
