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


ORPHAN = """
import asyncio, os, time
from ccm.processes import adopt_orphans, zombies
from ccm.supervisor import starter
starter.REAP_INTERVAL = 0.01
adopt_orphans()
if (middle := os.fork()) == 0:
    os.fork()
    os._exit(0)
os.waitpid(middle, 0)
while not zombies():
    time.sleep(0.01)
async def reap():
    reaping = asyncio.create_task(starter.reap_orphans())
    while zombies() and not reaping.done():
        await asyncio.sleep(0.01)
    reaping.cancel()
asyncio.run(reap())
"""


def test_a_process_that_was_adopted_is_no_zombie_for_long(tmp_path: Path) -> None:
    done = run(tmp_path, ORPHAN)
    assert done.returncode == 0, done.stderr


def test_a_process_of_ours_leaves_no_core_dump(tmp_path: Path) -> None:
    done = run(tmp_path, SCRIPT)
    assert (done.returncode, done.stdout) == (-6, "True True\n"), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]


def run(tmp_path: Path, text: str) -> "subprocess.CompletedProcess[str]":
    script = tmp_path / "script.py"
    script.write_text(text)
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, str(script)],
        env={"PYTHONPATH": str(root)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=timeout(),
        check=False,
    )
