"""The conformance kit against the lab."""

from pathlib import Path

import pytest

from tests.integration.testkit.kit_run import ON_EMULATORS, check_kit
from tests.labs.incus.lab import Lab
from tests.support.running import long

pytestmark = [long, pytest.mark.timeout(3600)]

SKIPPED = {
    "no two machines of this cloud have one name",
    "the adapter names no SDK",
    "lists come whole from this cloud",
    "the adapter refuses no credentials",
    "balancers have no names, only addresses and marks",
    "this provider reads each load balancer by itself",
    "it takes 201 volumes",
    "the provider does not honour source ranges",
    "the provider does not honour session affinity",
}


def test_the_provider_passes_the_kit(lab: Lab, tmp_path: Path) -> None:
    tests = ("-k", f"not ({ON_EMULATORS})")
    check_kit(tmp_path, "incus.adapter:IncusAdapter", SKIPPED, *tests, timeout=3500)
