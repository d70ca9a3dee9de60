"""What a process asks of the kernel."""

import subprocess
import sys
from pathlib import Path

from tests.support.deadlines import timeout

SCRIPT = """
import ctypes, os, resource
from ccm.processes import keep_memory_private, open_files, resident_bytes
resource.setrlimit(resource.RLIMIT_CORE, resource.getrlimit(resource.RLIMIT_CORE)[1:] * 2)
keep_memory_private()
assert ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 0  # PR_GET_DUMPABLE
assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    keep_memory_private()
print(open_files()[0] > 2, resident_bytes() > 0, flush=True)
os.abort()
"""


def test_a_process_of_ours_leaves_no_core_dump(tmp_path: Path) -> None:
    script = tmp_path / "abort.py"
    script.write_text(SCRIPT)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(script)],
        env={"PYTHONPATH": str(root)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=timeout(),
        check=False,
    )
    assert (done.returncode, done.stdout) == (-6, "True True\n"), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["abort.py"]
