"""`python -m tests [pytest arguments]`: all tests, and once more alone what failed.

What fails twice is red. What passes alone is unsteady: a bug of the test or of the product that
shows on a busy machine only, listed at the end without failing the run.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.deadlines import TIMED
from tests.support.outcomes import Outcomes, read, summary

PROCESSES = os.environ.get("TEST_PROCESSES", "6")
BESIDE = ("-n", PROCESSES, "--dist", "loadgroup", "-m", "not alone")
APART = ("-n", PROCESSES, "--dist", "loadgroup", "-m", "alone")
"""Tests that measure time run first, while the machine rests, beside others of their kind only."""
ALONE = ("-n", "0")
AT_MOST_TWICE = 40
"""More failures than that are no matter of load."""


def main(arguments: Sequence[str]) -> int:
    with TemporaryDirectory() as folder:
        first = Outcomes()
        for name, options, default in (("apart", APART, [TIMED]), ("beside", BESIDE, [])):
            first |= _run(Path(folder, f"{name}.jsonl"), *options, *(arguments or default))
        second = Outcomes()
        if first.failed and first.is_complete and len(first.failed) <= AT_MOST_TWICE:
            print(f"\n{len(first.failed)} failed: once more, alone", flush=True)
            chosen = Path(folder, "failed")
            chosen.write_text("\n".join(first.failed))
            second = _run(Path(folder, "alone.jsonl"), *ALONE, f"@{chosen}")
        text, is_red = summary(first, second, is_ci=bool(os.environ.get("CI")))
    print(text, flush=True)
    return 1 if is_red else 0


def _run(log: Path, *options: str) -> Outcomes:
    command = (sys.executable, "-m", "pytest", "-q", "-r", "E", f"--report-log={log}", *options)
    code = subprocess.run(command, check=False).returncode
    return read(log, code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
