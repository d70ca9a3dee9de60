"""The conformance kit against the server, each request and answer against the contract."""

from pathlib import Path

import pytest

from tests.integration.testkit.kit_run import check_kit

pytestmark = pytest.mark.timeout(600)

SKIPPED = {
    "a name with the Service's UID is upstream's mark",
    "the adapter names no SDK",
    "this provider reads each load balancer by itself",
    "the provider has no routes",
    "the provider does not honour session affinity",
    "the provider does not honour a requested IP",
    "the provider does not honour two IP families",
    # What follows from having none of these.
    "the adapter does not list routes",
    "the adapter creates no foreign routes",
}


def test_the_provider_passes_the_kit(tmp_path: Path) -> None:
    check_kit(tmp_path, "digitalocean.adapter:DigitalOceanAdapter", SKIPPED, timeout=550)
