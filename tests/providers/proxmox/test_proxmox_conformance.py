"""The conformance kit against the stand-in."""

from pathlib import Path

import pytest

from tests.integration.testkit.kit_run import INSTANCES_ONLY, check_kit

pytestmark = pytest.mark.timeout(600)

SKIPPED = INSTANCES_ONLY | {
    "the adapter names no SDK",
    "lists come whole from this cloud",
}


def test_the_provider_passes_the_kit(tmp_path: Path) -> None:
    check_kit(tmp_path, "proxmox.adapter:ProxmoxAdapter", SKIPPED, timeout=550)
