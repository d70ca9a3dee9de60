"""What an author of a provider does: `provider new`, and the kit in a process of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from click.testing import CliRunner

from ccm.cli.main import main
from tests.support import deadlines

ROOT = Path(__file__).parents[3]
INSTANCES_ONLY = frozenset(
    {
        "the provider has no load balancers",
        "the provider has no routes",
        "the provider has no volumes",
        # What follows from having none of these.
        "the adapter names no annotations",
        "the adapter does not list routes",
        "the adapter does not list the resources of load balancers",
        "the adapter creates no foreign routes",
    }
)
"""What is not shown of a provider that knows of machines and nothing else."""
HOSTILE = {
    "the adapter has no other host",
    "the adapter injects no fault 'endless'",
    "the adapter renews no certificate",
    "the answers are not JSON, or have no record of this one alone",
}
"""What is tried on the stand-in of the kit, whose transport is everybody's."""
ON_EMULATORS = "not_kept or nothing_of_a_deletion or mixes_up"
"""Cases for emulators alone: in a lab, each of their many answers would take a load balancer."""
ROW = re.compile(r"(?P<area>[a-z ]+?)\s{2,}(?P<passed>\d+)\s+(?P<skipped>\d+)\s+(?P<failed>\d+)")


@dataclass(eq=False)
class Run:
    """How it ended and what it printed."""

    code: int = 0
    output: str = ""

    def count(self, column: str, area: str = "all") -> int:
        """A number in the table of the report."""
        rows = [ROW.fullmatch(line.strip()) for line in self.output.splitlines()]
        found = [int(row[column]) for row in rows if row and row["area"] == area]
        assert len(found) == 1, self.output
        return found[0]

    def skipped(self) -> set[str]:
        """The lines below the table, without the names of the tests."""
        _, _, rest = self.output.partition("\nskipped:\n")
        lines = [line.strip() for line in takewhile(is_indented, rest.splitlines())]
        return {f"{area}: {reason}" for area, _, reason in (line.split(": ", 2) for line in lines)}


def is_indented(line: str) -> bool:
    return line.startswith("  ")


def run_pytest(directory: Path, *arguments: str, timeout: float = 110) -> Run:
    """`python -m pytest` in that folder, which can be imported from as this tree can."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments]
    done = subprocess.run(
        command,
        cwd=directory,
        env={**ours, "PYTHONPATH": f"{directory}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=deadlines.timeout(timeout),
        check=False,
    )
    return Run(done.returncode, done.stdout + done.stderr)


def check_kit(
    directory: Path, adapter: str, may_skip: Collection[str], *more: str, timeout: float
) -> None:
    """The provider of `tests.providers` whose adapter this is passes; only these are not shown."""
    provider = adapter.split(".")[0]
    kit = ("--pyargs", "ccm.cloud.testkit", f"--provider={provider}")
    run = run_pytest(
        directory, *kit, f"--adapter=tests.providers.{adapter}", *more, timeout=timeout
    )
    assert run.code == 0, run.output[-8000:]
    assert run.count("passed") > 0
    assert run.count("failed") == 0
    assert {reason.partition(": ")[2] for reason in run.skipped()} <= {*may_skip, *HOSTILE}


def generate(directory: Path, name: str, *flags: str) -> Path:
    """The package in a new folder below `directory`."""
    target = directory / f"ccm-provider-{name}"
    done = CliRunner().invoke(main, ["provider", "new", name, *flags, "--directory", str(target)])
    assert done.exit_code == 0, done.output
    return target


def install(package: Path) -> None:
    """Let setuptools read the package's own configuration and write its entry points beside it."""
    command = [sys.executable, "-W", "ignore", "-c", "import setuptools; setuptools.setup()"]
    subprocess.run(
        [*command, "-q", "egg_info"], cwd=package, check=True, timeout=deadlines.timeout()
    )
