"""The conformance kit in the lab, each request and answer through Microsoft's types."""

from pathlib import Path

import pytest

from tests.integration.testkit.kit_run import check_kit
from tests.labs.azure.lab import MISSING, is_built
from tests.support.needed import needed
from tests.support.running import long

pytestmark = pytest.mark.timeout(1200)

SKIPPED = {
    "a frontend of the Service's UID is upstream's mark",
    "lists come whole from this cloud",
    "no two machines of this cloud have one name",
    "other clusters have load balancers of their own",
    "the adapter names no SDK",
    "the adapter renews no certificate",
    "this provider reads each load balancer by itself",
}
QUICK = (
    "test_instances or test_routes or test_credentials or test_load_balancers"
    " or test_a_balancer_or_address_of_another or (mixes_up and not route)"
)


@pytest.mark.parametrize(
    "tests",
    [QUICK, pytest.param(f"not ({QUICK})", marks=long)],
    ids=["usual", "all else"],
)
def test_the_provider_passes_the_kit(tmp_path: Path, tests: str) -> None:
    needed(is_built() or None, MISSING)
    check_kit(tmp_path, "azure.adapter:AzureAdapter", SKIPPED, "-k", tests, timeout=1100)
