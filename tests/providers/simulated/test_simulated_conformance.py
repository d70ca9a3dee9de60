"""The conformance kit, with the cloud as a third process."""

from pathlib import Path

from tests.integration.testkit.kit_run import HOSTILE, run_pytest

ADAPTER = "tests.providers.simulated.adapter:SimulatedAdapter"


def test_the_provider_passes_the_kit(tmp_path: Path) -> None:
    arguments = ("--pyargs", "ccm.cloud.testkit", "--provider=simulated", f"--adapter={ADAPTER}")
    run = run_pytest(tmp_path, *arguments)
    assert run.code == 0, run.output
    assert run.count("failed") == 0
    assert run.count("passed") > 200
    assert {one for one in run.skipped() if one.partition(": ")[2] not in HOSTILE} == {
        "service changes: the provider does not honour session affinity",
        "service changes: the provider does not honour two IP families",
    }
