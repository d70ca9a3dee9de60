"""The journal of keys in flight on a file system that is full, a real one."""

import subprocess
import sys
from pathlib import Path

import pytest

from ccm.bus.in_flight import SIZE, SLOTS
from tests.support.deadlines import timeout
from tests.support.namespaces import ROOT, why_no_namespaces

MISSING = why_no_namespaces("mount", "util-linux mount")

SCRIPT = """
import sys
from pathlib import Path
from ccm.bus.in_flight import SLOTS, InFlightJournal, read_in_flight

def fill():
    with open(directory / "filler", "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)): pass
        except OSError: pass

directory, fills_first = Path(sys.argv[1]), sys.argv[2] == "before"
if fills_first: fill()
journal = InFlightJournal(directory / "journal")
if not fills_first: fill()
for number in range(SLOTS): journal.take(str(number))
print(len(read_in_flight(directory / "journal")))
"""


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@pytest.mark.parametrize(("when", "recorded"), [("before", 0), ("after", SLOTS)])
def test_a_full_file_system_ends_no_worker(tmp_path: Path, when: str, recorded: int) -> None:
    script = tmp_path / "take.py"
    script.write_text(SCRIPT)
    full = tmp_path / "run"
    full.mkdir()
    mount = f"mount -t tmpfs -o size={SIZE + (1 << 16)} none {full}"
    run = f"exec {sys.executable} {script} {full} {when}"
    done = subprocess.run(
        [*ROOT, "unshare", "--mount", "sh", "-c", f"{mount} && {run}"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
        timeout=timeout(),
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"{recorded}\n"), done.stderr
    assert ("no room for the keys in flight" in done.stderr) == (when == "before")
