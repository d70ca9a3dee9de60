"""The conformance kit against the stand-in."""

from pathlib import Path

import pytest

from tests.testkit.kit_run import run_pytest

pytestmark = pytest.mark.timeout(600)

SKIPPED = {
    "machines carry no mark of a cluster",
    "the adapter names no SDK",
    "the provider has one kind of read of machines",
    "the provider has no load balancers",
    "the provider has no routes",
    "the provider has no volumes",
    # What follows from having none of these.
    "the adapter names no annotations",
    "the adapter does not list routes",
    "the adapter does not list the resources of balancers",
    "the adapter creates no foreign routes",
    "lists come whole from this cloud",
}


def test_the_provider_passes_the_kit(tmp_path: Path) -> None:
    adapter = "--adapter=tests.providers.proxmox.adapter:ProxmoxAdapter"
    kit = ("--pyargs", "ccm.cloud.testkit", "--provider=proxmox", adapter)
    run = run_pytest(tmp_path, *kit, timeout=550)
    assert run.code == 0, run.output[-8000:]
    assert run.count("passed") > 0
    assert {reason.partition(": ")[2] for reason in run.skipped()} <= SKIPPED
