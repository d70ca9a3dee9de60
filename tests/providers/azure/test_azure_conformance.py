"""The conformance kit in the lab, each request and answer through Microsoft's types."""

from pathlib import Path

import pytest

from tests.integration.testkit.kit_run import check_kit
from tests.labs.azure.lab import MISSING, is_built
from tests.support.needed import needed
from tests.support.running import long

pytestmark = pytest.mark.timeout(600)

SKIPPED = {
    "the adapter names no SDK",
    "the adapter names no annotations",
    "no two machines of this cloud have one name",
    "lists come whole from this cloud",
    "the provider has no load balancers",
    "the adapter renews no certificate",
    "no Service of this cloud names a load balancer or an address",
    "the adapter does not list the resources of load balancers",
}


@pytest.mark.parametrize(
    "tests",
    ["not test_failures", pytest.param("test_failures", marks=long)],
    ids=["usual", "failures"],
)
def test_the_provider_passes_the_kit(tmp_path: Path, tests: str) -> None:
    needed(is_built() or None, MISSING)
    check_kit(tmp_path, "azure.adapter:AzureAdapter", SKIPPED, "-k", tests, timeout=550)
