"""The cloud as a process of its own: ready file, seed, signals, and faults of its command line."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from ccm.errors import ExitCode
from ccm.sandbox.cloud.client import CloudAdmin
from tests.support.deadlines import timeout
from tests.support.running import wait_for

Launch = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def launch() -> Iterator[Launch]:
    children: list[subprocess.Popen[str]] = []

    def start(*arguments: str | Path) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "ccm.sandbox.cloud", *map(str, arguments)]
        child = subprocess.Popen(command, stdout=-1, stderr=-1, text=True)
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
async def test_it_writes_its_url_serves_its_seed_and_stops_cleanly(
    launch: Launch, tmp_path: Path, ending: signal.Signals
) -> None:
    seed, url = tmp_path / "seed.json", tmp_path / "url"
    seed.write_bytes(orjson.dumps({"machines": [{"name": "a", "zone": "zone-q"}]}))
    child = launch(
        f"--url-file={url}", f"--seed-file={seed}", "--read-rate=20:40",
        "--page=7", "--latency=0.001", "--parameter=retention=5", "--parameter=max_routes=3",
    )  # fmt: skip
    wait_for("the cloud listens", url.exists)
    async with CloudAdmin(url.read_text()) as admin:
        assert [machine.zone for machine in await admin.machines()] == ["zone-q"]
        limits = await admin.set_limits()
    assert limits["read"] == {"per_second": 20, "burst": 40}
    assert (limits["page"], limits["latency"], limits["write"]) == (7, 0.001, None)
    assert (limits["retention"], limits["max_routes"]) == (5, 3)
    child.send_signal(ending)
    _, errors = child.communicate(timeout=timeout())
    assert (child.returncode, errors) == (0, "")
    assert sorted(os.listdir(tmp_path)) == ["seed.json", "url"]


@pytest.mark.parametrize(
    ("content", "word"),
    [("{", "JSON"), ('{"machines": [{}]}', "needs 'name'"), ('{"clouds": []}', "clouds")],
)
def test_a_wrong_seed_ends_it_at_once(
    launch: Launch, tmp_path: Path, content: str, word: str
) -> None:
    seed = tmp_path / "seed.json"
    seed.write_text(content)
    child = launch(f"--seed-file={seed}")
    _, errors = child.communicate(timeout=timeout())
    assert child.returncode == ExitCode.CONFIGURATION
    assert word in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    "argument", ["--read-rate=fast", "--read-rate=0", "--parameter=gravity=1", "--parameter=page=x"]
)
def test_a_wrong_argument_is_a_usage_error(launch: Launch, argument: str) -> None:
    child = launch(argument)
    _, errors = child.communicate(timeout=timeout())
    assert child.returncode == ExitCode.USAGE
    assert "Traceback" not in errors
