"""The conformance kit against the emulator, for both kinds of balancers."""

from pathlib import Path

import pytest

from tests.integration.testkit.kit_run import check_kit
from tests.support.running import long

QUICK = (
    "(test_instances and not batch and not call and not nothing_is_gone)"
    " or mixes_up_machines"
    " or our_mark or beside_ours or not_listed or another_routes or names_is_refused or are_shown"
)
"""Existence and ownership."""
BROKEN_OFF = "converges and killed and after"
"""A process that ends after any of its calls, which leaves the most behind."""
SKIPPED = {
    "no two machines of this cloud have one name",
    "lists come whole from this cloud",
    "this provider reads each load balancer by itself",
    "the provider does not honour session affinity",
    "the provider does not honour a requested IP",
    "two owners meet in one route table only, where all is the cluster's",
    "no Service of this cloud names a load balancer or an address",
    "an address without a mark is free for any Service",
}


def check(directory: Path, adapter: str, chosen: str) -> None:
    """Nothing failed, and what is skipped is what an emulator of AWS cannot do."""
    check_kit(directory, f"aws.adapter:{adapter}", SKIPPED, "-k", chosen, timeout=1800)


@pytest.mark.timeout(600)
def test_the_provider_passes_the_quick_part_of_the_kit(tmp_path: Path) -> None:
    check(tmp_path, "AwsAdapter", f"{QUICK} or ({BROKEN_OFF} and Delete)")


@pytest.mark.timeout(600)
@long
def test_the_provider_finishes_network_balancers_that_were_broken_off(tmp_path: Path) -> None:
    check(tmp_path, "NetworkAdapter", f"({BROKEN_OFF} and Change) or names_is_refused")


@pytest.mark.timeout(3600)
@long
@pytest.mark.parametrize("adapter", ["AwsAdapter", "NetworkAdapter"])
def test_the_provider_passes_the_whole_kit(tmp_path: Path, adapter: str) -> None:
    check(tmp_path, adapter, "test")
