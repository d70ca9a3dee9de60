"""No process of ours runs code that lies in the directory where a command is given."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.deadlines import timeout
from tests.support.running import Supervisor, Where, children_of, wait_for

MODULES = ("sitecustomize", "usercustomize", "yaml", "orjson", "zmq", "multiprocess", "asyncio")
SCRIPT = Path(sys.executable).with_name("ccm-supervisor")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A directory with modules that leave a trace when they are imported."""
    folder = tmp_path / "hostile"
    for name in ("ccm", "workers", *MODULES):
        package = folder / name
        package.mkdir(parents=True)
        trace = f"open({str(tmp_path / f'imported-{name}')!r}, 'w').close()"
        (package / "__init__.py").write_text(f"{trace}\nraise ImportError\n")
    return folder


class Installed(Supervisor):
    """Started by the script that an installation has, which is safe itself."""

    def command(self, arguments: list[str]) -> list[str]:
        return [str(SCRIPT), *arguments[1:]]


@pytest.mark.real
def test_workers_that_start_again_import_nothing_from_there(
    hostile: Path, where: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(hostile)
    with Installed(where) as supervisor:
        first = supervisor.wait_running()["node-0"]["pid"]
        for pid in children_of(supervisor.process.pid):  # the template too, which forks them else
            os.kill(pid, signal.SIGKILL)
        wait_for("a successor runs", lambda: supervisor.is_replaced("node-0", first))
    assert sorted(where.directory.glob("imported-*")) == []


def test_the_sandbox_imports_nothing_from_there(hostile: Path, tmp_path: Path) -> None:
    directory = tmp_path / "sandbox"
    command = (str(SCRIPT), "sandbox", "--nodes=1", f"--directory={directory}")
    with subprocess.Popen(command, cwd=hostile, stdout=subprocess.PIPE, text=True) as sandbox:
        assert sandbox.stdout
        first = sandbox.stdout.readline()
        threading.Thread(target=sandbox.stdout.read, daemon=True).start()
        sandbox.send_signal(signal.SIGTERM)
        sandbox.wait(timeout())
    assert first
    assert sorted(tmp_path.glob("imported-*")) == []
