"""The conformance kit against the lab."""

from pathlib import Path

import pytest

from tests.integration.testkit.kit_run import INSTANCES_ONLY, check_kit
from tests.labs.vsphere.lab import MISSING, is_built
from tests.support.needed import needed

pytestmark = pytest.mark.timeout(600)

SKIPPED = INSTANCES_ONLY | {
    "machines carry no mark of a cluster",
    "lists come whole from this cloud",
}


def test_the_provider_passes_the_kit(tmp_path: Path) -> None:
    needed(is_built(), MISSING)
    check_kit(tmp_path, "vsphere.adapter:VsphereAdapter", SKIPPED, timeout=550)
