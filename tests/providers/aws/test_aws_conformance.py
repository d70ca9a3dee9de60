"""The conformance kit against the emulator, for both kinds of balancers."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proc.running import long

ROOT = Path(__file__).parents[3]
QUICK = "existence or ownership"
NOT_SHOWN = {
    "no two machines of this cloud have one name",
    "lists come whole from this cloud",
    "the provider does not honour session affinity",
    "the provider does not honour two IP families",
    "the provider does not honour a requested IP",
    "two owners meet in one route table only, where all is the cluster's",
}


def run_kit(directory: Path, adapter: str, chosen: str) -> str:
    """What the kit prints; it ends well."""
    command = [
        sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q",
        "--pyargs", "ccm.cloud.testkit", "--provider=aws",
        f"--adapter=tests.providers.aws.adapter:{adapter}", "-k", chosen,
    ]  # fmt: skip
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command,
        cwd=directory,
        env={**ours, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


def check(output: str) -> None:
    """Nothing failed, and what is not shown is what an emulator of AWS cannot show."""
    (row,) = re.findall(r"^\s*all\s+(\d+)\s+(\d+)\s+(\d+)\s*$", output, re.MULTILINE)
    shown, _, failed = map(int, row)
    assert shown > 0
    assert failed == 0
    _, _, rest = output.partition("\nnot shown:\n")
    reasons = {line.rpartition(": ")[2].strip() for line in rest.splitlines() if ": " in line}
    assert reasons <= NOT_SHOWN


@pytest.mark.timeout(600)
def test_the_provider_passes_the_quick_part_of_the_kit(tmp_path: Path) -> None:
    check(run_kit(tmp_path, "AwsAdapter", QUICK))


@pytest.mark.timeout(3600)
@long
@pytest.mark.parametrize("adapter", ["AwsAdapter", "NetworkAdapter"])
def test_the_provider_passes_the_whole_kit(tmp_path: Path, adapter: str) -> None:
    check(run_kit(tmp_path, adapter, "test"))
