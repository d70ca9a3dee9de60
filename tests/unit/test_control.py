"""The control socket: both ends, and peers that misbehave."""

import asyncio
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from ccm.bus import control
from ccm.bus.control import ControlServer, NotRunning, ask
from ccm.model.objects import Json
from tests.support.deadlines import timeout, within


async def echo(request: Json) -> Json:
    if "fails" in request:
        raise KeyError("a bug")
    return {"heard": request}


@pytest.fixture
async def path(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    monkeypatch.setattr(control, "LINE_SIZE_LIMIT", 64 << 10)
    async with serving(short_dir / "control.sock", timeout()) as path:
        yield path


@asynccontextmanager
async def serving(path: Path, line_timeout: float) -> AsyncIterator[Path]:
    server = ControlServer(path, echo, line_timeout)
    await server.start()
    yield path
    server.close()


async def asked(path: Path, request: Json) -> Json:
    return await asyncio.to_thread(ask, path, request)


async def said(path: Path, line: bytes) -> Json:
    """What the server answers to this line."""
    reader, writer = await asyncio.open_unix_connection(path)
    async with within():
        writer.write(line)
        answer = orjson.loads(await reader.readline())
        writer.close()
        await writer.wait_closed()
    assert isinstance(answer, dict)
    return answer


async def test_a_command_that_fails_is_answered_with_an_error(path: Path) -> None:
    assert "error" in await asked(path, {"fails": True})


async def test_other_users_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_peer_uid", lambda writer: 12345)
    assert "may ask" in (await asked(path, {"command": "stop"}))["error"]


async def test_a_long_answer_arrives_whole(path: Path) -> None:
    text = "x" * (60 << 10)
    assert await asked(path, {"text": text}) == {"heard": {"text": text}}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        pytest.param(b"\n", "not one line of JSON", id="empty"),
        pytest.param(b"status\n", "not one line of JSON", id="text"),
        pytest.param(b"\xff\xfe\n", "not one line of JSON", id="bytes"),
        pytest.param(b'{"command":\n', "not one line of JSON", id="half"),
        pytest.param(b"[1]\n", "not a JSON object", id="list"),
        pytest.param(b"{" + b" " * (70 << 10) + b"}\n", "not one line of JSON", id="oversized"),
    ],
)
async def test_garbage_is_answered_with_what_is_wrong(
    path: Path, line: bytes, complaint: str
) -> None:
    assert complaint in (await said(path, line))["error"]
    assert await asked(path, {}) == {"heard": {}}


async def test_a_peer_that_says_nothing_holds_up_no_one(path: Path) -> None:
    silent = [await asyncio.open_unix_connection(path) for _ in range(20)]
    assert await asked(path, {"a": 1}) == {"heard": {"a": 1}}
    for _, writer in silent:
        writer.close()
        await writer.wait_closed()


async def test_a_peer_that_says_nothing_is_let_go(short_dir: Path) -> None:
    async with serving(short_dir / "control.sock", line_timeout=0.01) as path, within():
        reader, writer = await asyncio.open_unix_connection(path)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


async def test_only_our_user_can_reach_the_socket(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


# Nobody there.


def test_without_a_supervisor_there_is_a_clear_error(short_dir: Path) -> None:
    with pytest.raises(NotRunning, match="no supervisor answers"):
        ask(short_dir / "control.sock", {})


async def test_the_socket_of_another_user_is_no_supervisor(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without XDG_RUNTIME_DIR it is below /tmp, where anybody may be first."""
    monkeypatch.setattr(control, "_uid_of", lambda peer: 12345)
    monkeypatch.setattr("ccm.bus.control.os.geteuid", lambda: 1000)
    with pytest.raises(NotRunning, match="of user 12345"):
        await asked(path, {})
    monkeypatch.setattr(control, "_uid_of", lambda peer: 1000)
    assert await asked(path, {}) == {"heard": {}}


def test_the_socket_of_a_dead_supervisor_is_not_a_supervisor(short_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(short_dir / "control.sock"))
    with pytest.raises(NotRunning):
        ask(short_dir / "control.sock", {})


def test_a_supervisor_that_hangs_is_not_waited_for(short_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(short_dir / "control.sock"))
        hanging.listen()
        with pytest.raises(NotRunning):
            ask(short_dir / "control.sock", {}, timeout=0.05)


async def test_a_closed_server_leaves_no_socket(short_dir: Path) -> None:
    async with serving(short_dir / "control.sock", timeout()):
        pass
    assert list(short_dir.iterdir()) == []
