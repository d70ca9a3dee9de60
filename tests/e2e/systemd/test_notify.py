"""What arrives at a real NOTIFY_SOCKET, and when the watchdog is fed."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ccm.supervisor.systemd import SystemdNotifier, feed_watchdog, update_status
from tests.support.deadlines import timeout, within
from tests.support.running import in_background
from tests.support.waiting import until as eventually


class Manager:
    """The receiving end, as systemd has it: a datagram socket."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0", 1))
        self._socket.settimeout(timeout())

    def receive(self) -> dict[str, str]:
        """The next datagram as systemd reads it: lines of NAME=value."""
        lines = self._socket.recv(4096).decode().split("\n")
        return dict(line.split("=", 1) for line in lines)

    def waiting(self) -> list[dict[str, str]]:
        """Everything that has arrived by now."""
        self._socket.setblocking(False)
        found = []
        with suppress(BlockingIOError):
            while True:
                found.append(self.receive())
        self._socket.settimeout(timeout())
        return found

    def notifier(self, **more: str) -> SystemdNotifier:
        return SystemdNotifier({"NOTIFY_SOCKET": self.address, **more})

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    name = f"@ccm-supervisor-test-{os.getpid()}"
    manager = Manager(name if request.param == "abstract" else str(tmp_path / "notify"))
    yield manager
    manager.close()


def test_a_status_is_one_printable_line_that_fits_into_a_datagram(manager: Manager) -> None:
    manager.notifier().status("one\ntwo\0READY=1\n" + "\N{GRINNING FACE}" * 5000)
    (status,) = manager.receive().values()
    assert status.startswith(r"one\ntwo\x00READY=1\n")
    assert len(f"READY=1\nSTATUS={status}".encode()) < 4096


def test_a_status_that_did_not_change_is_not_sent_again(manager: Manager) -> None:
    notifier = manager.notifier()
    for text in ("stands by", "stands by", "holds the lease", "holds the lease"):
        notifier.status(text)
    assert [seen["STATUS"] for seen in manager.waiting()] == ["stands by", "holds the lease"]


def test_a_reload_carries_the_monotonic_time(manager: Manager) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    manager.notifier().reloading()
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    seen = manager.receive()
    assert seen["RELOADING"] == "1"
    assert before <= int(seen["MONOTONIC_USEC"]) <= after


@pytest.mark.parametrize("address", ["", "vsock:2:1234", "relative/path"])
def test_without_a_socket_nothing_happens(address: str) -> None:
    notifier = SystemdNotifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "2000000"})
    notifier.ready("up")
    notifier.stopping(1.0)
    assert notifier.watchdog_period is None


def test_a_manager_that_is_gone_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    notifier = SystemdNotifier({"NOTIFY_SOCKET": "/nonexistent/notify"})
    for _ in range(3):
        notifier.watchdog()
    assert [record.message for record in caplog.records] == ["systemd not notified"]


def test_a_manager_that_hangs_does_not_block(manager: Manager) -> None:
    notifier = manager.notifier()
    with open("/proc/sys/net/unix/max_dgram_qlen", encoding="ascii") as file:
        queue_limit = int(file.read())
    for _ in range(queue_limit + 10):  # nobody receives
        notifier.watchdog()
    assert len(manager.waiting()) <= queue_limit + 1


def fill(manager: Manager) -> None:
    """Leave no room for a datagram, as any user of the host can; one socket may not send enough."""
    address = manager.address.replace("@", "\0", 1)
    for _ in range(10):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as flood, suppress(BlockingIOError):
            flood.setblocking(False)
            while True:
                flood.sendto(b"X=1", address)


async def test_a_keep_alive_that_is_not_taken_is_sent_again_at_once(manager: Manager) -> None:
    fill(manager)
    notifier, asked = manager.notifier(WATCHDOG_USEC="7200000000"), [0]
    assert not notifier.watchdog()

    def what_is_stuck() -> None:
        asked[0] += 1

    async with in_background(feed_watchdog(notifier, what_is_stuck)):
        await eventually(lambda: asked[0] > 0)
        await until(manager, {"WATCHDOG": "1"})


async def test_an_end_of_the_start_that_is_not_taken_is_reported_again(manager: Manager) -> None:
    fill(manager)
    notifier, asked = manager.notifier(), [0]

    def is_up() -> bool:
        asked[0] += 1
        return True

    async with in_background(update_status(notifier, is_up, lambda: "works", 0.01)):
        await eventually(lambda: asked[0] > 0)
        await until(manager, {"READY": "1", "STATUS": "works"})


def test_a_status_that_is_not_taken_is_sent_again(manager: Manager) -> None:
    fill(manager)
    notifier = manager.notifier()
    notifier.status("stands by")
    manager.waiting()
    notifier.status("stands by")
    assert manager.waiting() == [{"STATUS": "stands by"}]


@pytest.mark.parametrize(
    ("variables", "period"),
    [
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_fed_at_half_its_time_if_it_is_ours(
    variables: dict[str, str], period: float | None
) -> None:
    assert SystemdNotifier({"NOTIFY_SOCKET": "/run/notify", **variables}).watchdog_period == period


def test_children_cannot_speak_for_us(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
    for name, value in zip(names, (manager.address, "1000000", str(os.getpid())), strict=True):
        monkeypatch.setenv(name, value)
    SystemdNotifier(os.environ).watchdog()
    code = f"import os, sys; sys.exit(any(name in os.environ for name in {names}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert manager.receive() == {"WATCHDOG": "1"}


async def until(manager: Manager, wanted: dict[str, str]) -> list[dict[str, str]]:
    """Everything that arrives up to the wanted datagram."""
    found: list[dict[str, str]] = []
    async with within():
        while wanted not in found:
            await asyncio.sleep(0.01)
            found += manager.waiting()
    return found


async def test_the_watchdog_starves_while_nothing_progresses(
    manager: Manager, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    stuck, asked = [""], [0]

    def what_is_stuck() -> str | None:
        asked[0] += 1
        return stuck[0] or None

    async def until_asked(times: int) -> None:
        before = asked[0]
        await eventually(lambda: asked[0] >= before + times)

    async with in_background(feed_watchdog(manager.notifier(WATCHDOG_USEC="40000"), what_is_stuck)):
        await until(manager, {"WATCHDOG": "1"})
        stuck[0] = "the lease was not looked at"
        await until_asked(1)
        manager.waiting()
        await until_asked(10)
        assert manager.waiting() == []
        stuck[0] = ""
        await until(manager, {"WATCHDOG": "1"})
    assert [record.message for record in caplog.records] == [
        "no progress, watchdog not fed",
        "progress again, watchdog fed",
    ]


async def test_a_start_and_a_reload_are_over_when_all_workers_are_up(manager: Manager) -> None:
    notifier, is_up, text = manager.notifier(), [False], ["starting"]
    ready = {"READY": "1", "STATUS": "works"}
    async with in_background(update_status(notifier, lambda: is_up[0], lambda: text[0], 0.01)):
        assert await until(manager, {"STATUS": "starting"}) == [{"STATUS": "starting"}]
        is_up[0], text[0] = True, "works"
        assert await until(manager, ready) == [ready]
        is_up[0] = False
        notifier.reloading()
        assert "RELOADING" in manager.receive()
        is_up[0] = True
        await until(manager, ready)
