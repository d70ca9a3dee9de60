"""The control socket: one JSON line asks, one JSON line answers; both ends are here."""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from ccm.model.objects import Json

log = logging.getLogger(__name__)

LINE_SIZE_LIMIT = 4 << 20  # bytes
LINE_TIMEOUT = 5.0  # seconds a peer may take for its line

Answer = Callable[[Json], Awaitable[Mapping[str, Any]]]


class NotRunning(Exception):
    """The control socket has no answer."""


class ControlServer:
    """Answers the commands of the same user (or root); a slow peer does not block the others."""

    def __init__(self, path: Path, answer: Answer, line_timeout: float = LINE_TIMEOUT) -> None:
        self._path, self._answer, self._line_timeout = path, answer, line_timeout
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        before = os.umask(0o077)
        try:
            self._server = await asyncio.start_unix_server(
                self._serve, self._path, limit=LINE_SIZE_LIMIT
            )
        finally:
            os.umask(before)

    def close(self) -> None:
        if self._server:
            self._server.close()
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._line_timeout):
                request = await self._read(reader, writer)
            reply = await self._reply(request)
            async with asyncio.timeout(self._line_timeout):
                writer.write(orjson.dumps(reply) + b"\n")
                await writer.drain()
        except (TimeoutError, OSError):
            pass  # the peer was too slow or left: its own loss
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Json | str:
        """The peer's request, or what is wrong with it."""
        try:
            request = orjson.loads(await reader.readline())
        except (orjson.JSONDecodeError, ValueError):
            return "the request is not one line of JSON"
        # Refused only now: a peer whose line is not read would see a reset instead of the answer.
        if _peer_uid(writer) not in (0, os.geteuid()):
            return "only the supervisor's own user and root may ask"
        return request if isinstance(request, dict) else "that is not a JSON object"

    async def _reply(self, request: Json | str) -> Mapping[str, Any]:
        if isinstance(request, str):
            return {"error": request}
        try:
            return await self._answer(request)
        except Exception as error:  # around one callback: the asker hears of it, others go on
            log.exception("command failed", extra={"command": request.get("command")})
            return {"error": f"the supervisor failed to answer: {error!r}"}


def _peer_uid(writer: asyncio.StreamWriter) -> int:
    return _uid_of(writer.get_extra_info("socket"))


def _uid_of(peer: socket.socket) -> int:
    """The user of the process at the other end."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid: int = struct.unpack("3i", credentials)[1]
    return uid


def ask(path: Path, request: Json, timeout: float = 10.0) -> Json:
    """The supervisor's answer; raises `NotRunning` when there is none within `timeout` seconds."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        try:
            connection.connect(str(path))
            if os.geteuid() not in (0, uid := _uid_of(connection)):
                raise NotRunning(f"{path} is of user {uid}: no supervisor of this user answers")
            connection.sendall(orjson.dumps(request) + b"\n")
            with connection.makefile("rb") as lines:
                answer = orjson.loads(lines.readline())
        except (OSError, orjson.JSONDecodeError) as error:
            raise NotRunning(f"no supervisor answers at {path}") from error
    return answer if isinstance(answer, dict) else {}
