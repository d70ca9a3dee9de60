"""The two ends of the bus, over a real socket."""

import asyncio
import os
import signal
import stat
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ccm.bus.frames import (
    Ack,
    AskFenced,
    Drain,
    Fenced,
    Heartbeat,
    Hello,
    Message,
    Permit,
    Resync,
    Synced,
    UseToken,
    WorkerSpec,
)
from ccm.bus.sockets import Hub, Permission, Port
from ccm.errors import ExitCode, NotLeading
from ccm.settings import Settings
from ccm.supervisor.budget import worker_name
from ccm.supervisor.children import Children, Hooks
from ccm.tls import Server
from tests.support.context import frame
from tests.support.deadlines import timeout, within
from tests.support.running import in_background
from tests.support.waiting import let_run, until


class Ends:
    """A hub and the ports that a test opens on it, each running, with what they received."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "bus.sock"
        self.at_hub: list[tuple[str, Message]] = []
        self.hub = Hub(self.path)
        self.tokens: list[str] = []
        self._ports: list[Port] = []
        self._tasks = [
            asyncio.create_task(
                self.hub.run(lambda worker, message: self.at_hub.append((worker, message)))
            )
        ]

    def open(self, worker: str, received: list[Message]) -> Port:
        port = Port(self.path, worker, self.tokens.append)
        port.on_message = received.append
        self._ports.append(port)
        self._tasks.append(asyncio.create_task(port.run()))
        return port

    async def connected(self, worker: str, received: list[Message]) -> Port:
        """A port whose hello has arrived."""
        self.hub.admit(worker, os.getpid())
        port = self.open(worker, received)
        port.send(Hello([], {}))
        await until(lambda: (worker, Hello([], {})) in self.at_hub)
        return port

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        for port in self._ports:
            port.close()
        self.hub.close()


@pytest.fixture
async def ends(short_dir: Path) -> AsyncIterator[Ends]:
    made = Ends(short_dir)
    yield made
    await made.close()


async def test_messages_arrive_in_order_in_both_directions(ends: Ends) -> None:
    received: list[Message] = []
    port = await ends.connected("node-0.1", received)
    for seq in range(500):
        assert port.send(Ack(1, seq))
        assert ends.hub.send("node-0.1", frame(seq))
    await until(lambda: len(received) == 500 and len(ends.at_hub) == 501)
    assert [message for _, message in ends.at_hub[1:]] == [Ack(1, seq) for seq in range(500)]
    assert received == [frame(seq) for seq in range(500)]


async def test_a_heartbeat_has_its_turn_while_more_and_more_comes(ends: Ends) -> None:
    beats, seen = 0, list[int]()

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0)
            beats += 1

    port = await ends.connected("node-0.1", [])
    port.on_message = lambda _: seen.append(beats)
    for seq in range(200):
        assert ends.hub.send("node-0.1", frame(seq))
    async with in_background(beat()):
        await until(lambda: len(seen) == 200)
    assert len({*seen}) == 200


async def test_all_else_has_its_turn_while_a_worker_sends_more_and_more(ends: Ends) -> None:
    """The Lease is renewed, and the permissions of all workers."""
    seen = set[int]()

    async def look() -> None:
        while True:
            await asyncio.sleep(0)
            seen.add(len(ends.at_hub))

    port = await ends.connected("node-0.1", [])
    for seq in range(200):
        assert port.send(Ack(1, seq))
    async with in_background(look()):
        await until(lambda: len(ends.at_hub) == 201)
    assert seen > {*range(10, 190)}


async def test_a_token_and_a_permission_are_taken_by_the_port_itself(ends: Ends) -> None:
    received: list[Message] = []
    port = await ends.connected("node-0.1", received)
    for message in (UseToken("/run/token"), Permit(time.monotonic() + timeout()), Ack(1, 1)):
        ends.hub.send("node-0.1", message)
    await until(lambda: received)
    port.permission.check()
    assert (ends.tokens, received) == (["/run/token"], [Ack(1, 1)])


async def test_a_worker_says_that_it_is_fenced_once_nothing_of_it_is_under_way(ends: Ends) -> None:
    received: list[Message] = []
    port = await ends.connected("node-0.1", received)
    port.is_idle = lambda: is_idle

    async def answered(number: int) -> bool:
        ends.hub.send("node-0.1", AskFenced(number))
        ends.hub.send("node-0.1", Ack(1, number))
        await until(lambda: Ack(1, number) in received)
        port.send(Ack(2, number))
        await until(lambda: ("node-0.1", Ack(2, number)) in ends.at_hub)
        return ("node-0.1", Fenced(number)) in ends.at_hub

    is_idle = True
    ends.hub.send("node-0.1", Permit(time.monotonic() + timeout()))
    assert not await answered(1)
    ends.hub.send("node-0.1", Permit(0.0))
    is_idle = False
    assert not await answered(2)
    is_idle = True
    assert await answered(3)


async def test_big_frames_go_through(ends: Ends) -> None:
    received: list[Message] = []
    port = await ends.connected("node-0.1", received)
    big = Heartbeat({}, {"text": "x" * (6 << 20)})
    assert port.send(big)
    assert ends.hub.send("node-0.1", big)
    await until(lambda: received and len(ends.at_hub) == 2)
    assert (received, ends.at_hub[1]) == ([big], ("node-0.1", big))


async def test_a_process_that_was_not_started_by_us_is_not_heard(
    ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    ends.hub.admit("node-0.1", os.getpid() + 1)
    ends.open("node-0.1", []).send(Resync("let me in"))
    ends.open("nobody.1", []).send(Resync("let me in"))
    await until(lambda: ends.hub.dropped == 2)
    assert ends.at_hub == []
    assert (
        caplog.messages.count("dropped a message from an unknown sender") == 1
    )  # not one for each


async def test_a_dismissed_worker_is_not_heard_any_more(
    ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    port = await ends.connected("node-0.1", [])
    ends.hub.dismiss("node-0.1")
    ends.hub.dismiss("node-0.1")
    port.send(Ack(1, 1))
    await until(lambda: "dropped a message from an unknown sender" in caplog.messages)
    assert len(ends.at_hub) == 1


async def test_a_message_to_a_worker_that_is_not_there_is_not_taken(ends: Ends) -> None:
    assert ends.hub.send("node-0.1", Ack(1, 1)) is False
    port = await ends.connected("node-0.1", [])
    assert ends.hub.send("node-0.1", Ack(1, 1)) is True
    port.close()
    await until(
        lambda: ends.hub.send("node-0.1", Ack(1, 1)) is False, "the worker's end being seen"
    )


async def test_a_message_that_is_not_understood_does_not_end_the_bus(
    ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    port = await ends.connected("node-0.1", [])
    port._socket.send_multipart([b"\xff garbage"])
    port._socket.send_multipart([b"two", b"parts"])
    port.send(Ack(1, 7))
    await until(lambda: ("node-0.1", Ack(1, 7)) in ends.at_hub)
    assert "message not understood" in caplog.messages


async def test_a_handler_that_fails_does_not_end_the_bus(
    ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    port = await ends.connected("node-0.1", [])
    ends.at_hub = None  # type: ignore[assignment]
    port.send(Ack(1, 1))
    await until(lambda: "message not handled" in caplog.messages)
    ends.at_hub = []
    port.send(Ack(1, 2))
    await until(lambda: ends.at_hub == [("node-0.1", Ack(1, 2))])


LAST_WORDS = """
import asyncio, os, sys
from pathlib import Path
from ccm.bus.frames import Ack
from ccm.bus.sockets import Port
async def main():
    port = Port(Path(sys.argv[1]), "node-0.1", print)
    for number in range(1000):
        port.send(Ack(1, number))
    port.close()
    os._exit(0)
asyncio.run(main())
"""


async def test_what_a_process_said_before_it_ended_at_once_arrives(ends: Ends) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", LAST_WORDS, str(ends.path))
    ends.hub.admit("node-0.1", process.pid)
    assert await process.wait() == 0
    await until(lambda: len(ends.at_hub) == 1000)


REFUSED = """
import sys
from pathlib import Path
from ccm.bus.frames import WorkerSpec
from ccm.tls import Server
from ccm.settings import Settings
from workers.main import main
path, supervisor = sys.argv[1:]
server = Server("http://127.0.0.1")
main(WorkerSpec("a-0", "a-0.1", "absent", path, "", int(supervisor), Settings(), server, "", {}))
"""


async def test_a_worker_that_cannot_start_ends_once_it_was_heard(ends: Ends) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", REFUSED, str(ends.path), str(os.getpid())
    )
    ends.hub.admit("a-0.1", process.pid)
    await until(lambda: bool(ends.at_hub))
    [(_, fault)] = ends.at_hub
    assert "'absent' cannot be imported" in str(fault)
    ends.hub.send("a-0.1", AskFenced(1))  # the supervisor may be busy, and the worker is there
    await until(lambda: ("a-0.1", Fenced(1)) in ends.at_hub)
    assert process.returncode is None
    ends.hub.send("a-0.1", Drain(0))
    assert await process.wait() == ExitCode.CONFIGURATION


async def test_only_our_user_can_reach_the_socket(ends: Ends) -> None:
    assert stat.S_IMODE(ends.path.stat().st_mode) & 0o077 == 0


# The permission to act.


async def test_a_permit_lets_a_worker_act(ends: Ends) -> None:
    port = await ends.connected("node-0.1", [])
    with pytest.raises(NotLeading):
        port.permission.check()
    waiting = asyncio.create_task(port.permission.wait())
    ends.hub.send("node-0.1", Permit(time.monotonic() + timeout()))
    async with within():
        await waiting
    port.permission.check()


@pytest.mark.parametrize("is_idle", [True, False])
async def test_who_is_idle_when_its_permission_is_taken_back_lives_on(
    ends: Ends, is_idle: bool
) -> None:
    port = await ends.connected("node-0.1", [])
    port.is_idle = lambda: is_idle
    port.permission.outlive_by(2 * timeout())
    try:
        ends.hub.send("node-0.1", Permit(time.monotonic() + timeout()))
        async with within():
            await port.permission.wait()
        ends.hub.send("node-0.1", Permit(0.0))
        await until(lambda: port.permission.seconds_left < 0)
        assert (signal.getitimer(signal.ITIMER_REAL)[0] == 0.0) is is_idle
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.mark.virtual_time
async def test_a_permission_runs_out() -> None:
    permission = Permission()
    permission.renew(time.monotonic() + 10.0)
    await asyncio.sleep(9.9)
    permission.check()
    await asyncio.sleep(0.2)
    with pytest.raises(NotLeading):
        permission.check()


@pytest.mark.virtual_time
async def test_a_permit_that_is_over_wakes_no_one() -> None:
    permission = Permission()
    waiting = asyncio.create_task(permission.wait())
    await let_run()
    permission.renew(time.monotonic() - 1)
    await asyncio.sleep(60.0)
    assert not waiting.done()
    permission.renew(time.monotonic() + 60)
    await waiting


async def test_no_one_can_take_the_name_of_a_successor(ends: Ends) -> None:
    read_end, write_end = os.pipe()
    spawned: list[WorkerSpec] = []

    def start(spec: WorkerSpec) -> SimpleNamespace:
        spawned.append(spec)
        return SimpleNamespace(pid=os.getpid(), sentinel=read_end)

    nothing = Hooks(
        admit=lambda _, process: ends.hub.admit(process.ident, process.handle.pid),
        gone=lambda _: None,
        drain=lambda *_: None,
        permit=lambda _: None,
        refused=lambda _: None,
        settings_for=lambda _: Settings(),
    )
    heard: list[Message] = []
    for number in range(1, 10):
        ends.open(f"node-0.{number}", heard).send(Resync("the successor, surely"))
    await until(lambda: ends.hub.dropped == 9)
    children = Children(ends.path, Settings(), Server("http://127.0.0.1"), cast(Any, start), "")
    children.bind(nothing)
    children.add({"node-0": "node"})
    asyncio.get_running_loop().remove_reader(read_end)
    [spec] = spawned
    port = ends.open(spec.ident, [])
    port.send(Hello([], {}))
    await until(lambda: ends.at_hub == [(spec.ident, Hello([], {}))])
    assert ends.hub.send(spec.ident, Ack(1, 1))
    assert worker_name(spec.ident) == "node-0"
    assert heard == []
    os.close(read_end)
    os.close(write_end)


async def test_the_sender_reports_a_message_that_is_too_large(
    ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    received: list[Message] = []
    port = await ends.connected("node-0.1", received)
    large = Heartbeat({}, {"text": "x" * (9 << 20)})
    assert not port.send(large)
    assert not ends.hub.send("node-0.1", large)
    reported = [vars(each)["why"] for each in caplog.records if each.message == "message not sent"]
    assert [why[:16] for why in reported] == ["Heartbeat: 94372"] * 2
    assert port.send(Synced())  # the connection is as it was
    await until(lambda: ("node-0.1", Synced()) in ends.at_hub)
