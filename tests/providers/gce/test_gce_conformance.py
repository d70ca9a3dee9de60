"""The conformance kit against the server, each request and answer against Google's contract."""

from pathlib import Path

import pytest

from tests.integration.testkit.kit_run import check_kit

pytestmark = pytest.mark.timeout(600)

SKIPPED = {
    "the adapter names no SDK",
    "the adapter refuses no credentials",
    "the provider has no load balancers",
    "the adapter names no annotations",
    "the adapter does not list the resources of load balancers",
}


def test_the_provider_passes_the_kit(tmp_path: Path) -> None:
    check_kit(tmp_path, "gce.adapter:GceAdapter", SKIPPED, timeout=550)
