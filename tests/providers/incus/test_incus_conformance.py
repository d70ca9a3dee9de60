"""The conformance kit against the lab."""

from pathlib import Path

import pytest

from tests.labs.incus.lab import Lab
from tests.proc.running import long
from tests.testkit.kit_run import run_pytest

pytestmark = [long, pytest.mark.timeout(3600)]

SKIPPED = {
    "instances carry no mark of a cluster",
    "no two machines of this cloud have one name",
    "the adapter names no SDK",
    "the provider has one kind of read of machines",
    "lists come whole from this cloud",
    "balancers have no names, only addresses and marks",
    "it takes 201 volumes",
    "the provider does not honour source ranges",
    "the provider does not honour session affinity",
}


def test_the_provider_passes_the_kit(lab: Lab, tmp_path: Path) -> None:
    adapter = "--adapter=tests.providers.incus.adapter:IncusAdapter"
    kit = ("--pyargs", "ccm.cloud.testkit", "--provider=incus", adapter)
    run = run_pytest(tmp_path, *kit, timeout=3500)
    assert run.code == 0, run.output[-8000:]
    assert run.count("passed") > 0
    assert {reason.partition(": ")[2] for reason in run.skipped()} <= SKIPPED
