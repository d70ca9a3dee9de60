"""The conformance kit against the server, each request and answer against Google's contract."""

from pathlib import Path

import pytest

from tests.integration.testkit.kit_run import check_kit
from tests.support.running import IS_LONG

pytestmark = pytest.mark.timeout(600)

SKIPPED = {
    "the adapter names no SDK",
    "the adapter renews no certificate",
    "this provider reads each load balancer by itself",
    "the provider does not honour TCP and UDP on one load balancer",
    "the provider does not honour two IP families",
}


def test_the_provider_passes_the_kit(tmp_path: Path) -> None:
    quick = () if IS_LONG else ("-k", "not test_failures")
    check_kit(tmp_path, "gce.adapter:GceAdapter", SKIPPED, *quick, timeout=550)
