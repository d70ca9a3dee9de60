"""A worker's writes stay here once its permission is over, however long they had to wait."""

import asyncio
import os
import socket
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ccm.bus.sockets import Permission
from ccm.errors import NotLeading
from ccm.http import HttpConnection
from ccm.kube.client import Fence, Kube, RateLimit
from ccm.kube.events import Event, EventRecorder, ObjectRef
from ccm.model.writes import Patch
from tests.support.deadlines import timeout
from tests.support.waiting import until
from workers.performer import Performer

from .api_server import ApiServer, Handler, failure, json_answer, serving, silence

OK = json_answer({"kind": "Node"})
PATCH = Patch("/api/v1/nodes/node-1", ({"op": "test", "path": "/metadata/uid", "value": "u"},))
NOTE = Event(ObjectRef("v1", "Node", "node-1", "u"), "Normal", "Synced", "synced")


@asynccontextmanager
async def fenced(
    *answers: Handler, in_flight: int = 32, rate: RateLimit | None = None
) -> AsyncIterator[tuple[ApiServer, Kube, Permission]]:
    """A server, a client behind a fence, and the permission, which is valid for long enough."""
    permission = Permission()
    permission.renew(time.monotonic() + timeout())
    async with serving(*answers) as (server, _):
        fence = Fence(permission.check, delivery=2.5)
        kube = Kube(server.config, "test-agent", in_flight, rate, fence)
        try:
            yield server, kube, permission
        finally:
            await kube.close()


async def test_without_a_permission_writes_stay_and_reads_leave() -> None:
    async with fenced(OK) as (server, kube, permission):
        permission.renew(0.0)
        for write in (kube.post("/x", {}), kube.put("/x", {}), kube.request("DELETE", "/x")):
            with pytest.raises(NotLeading):
                await write
        assert kube.writes == 0
        await kube.get("/x")
        assert [request.method for request in server.requests] == ["GET"]


async def test_a_write_that_waited_for_a_slot_is_checked_again() -> None:
    async with fenced(silence, in_flight=1) as (server, kube, permission):
        performer = Performer(kube, permission, grace=1.0)
        first = asyncio.create_task(performer.perform(PATCH))
        await until(lambda: server.requests)
        second = asyncio.create_task(performer.perform(PATCH))
        await asyncio.sleep(0)
        permission.renew(0.0)
        first.cancel()
        with pytest.raises(NotLeading):
            await second
        assert len(server.requests) == 1


async def test_a_write_that_the_server_put_off_is_checked_again() -> None:
    busy = failure(429, "TooManyRequests", Retry_After="1")
    async with fenced(busy, OK) as (server, kube, permission):
        writing = asyncio.create_task(Performer(kube, permission, grace=1.0).perform(PATCH))
        await until(lambda: server.requests)
        permission.renew(0.0)
        with pytest.raises(NotLeading):
            await writing
        assert len(server.requests) == 1


async def test_a_write_that_waited_for_its_connection_is_checked_again() -> None:
    async with fenced(OK) as (server, kube, permission):

        async def connect_slowly() -> HttpConnection:
            connection = await connect()
            permission.renew(0.0)
            return connection

        connect = kube._http._connect
        kube._http._connect = connect_slowly  # type: ignore[method-assign]
        with pytest.raises(NotLeading):
            await Performer(kube, permission, grace=1.0).perform(PATCH)
        assert (kube.writes, server.requests) == (0, [])


async def test_the_kernel_does_not_deliver_for_longer_than_it_may() -> None:
    async with fenced(OK) as (server, kube, _):
        await kube.get("/x")
        port = int(server.url.rpartition(":")[2])
        assert _delivery_limits(port) == {2500}


def _delivery_limits(port: int) -> set[int]:
    """TCP_USER_TIMEOUT, in milliseconds, of our open connections to `port`."""
    limits = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.stat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as ours:
                if ours.family == socket.AF_INET and ours.getpeername()[1] == port:
                    limits.add(ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
        except OSError:
            continue  # not connected, or closed meanwhile
    return limits


async def test_events_of_a_fenced_worker_are_lost_and_nothing_breaks() -> None:
    async with fenced(OK) as (server, kube, permission):
        recorder = EventRecorder(kube, "cloud-node-controller", "node-0")
        sending = asyncio.create_task(recorder.run())
        permission.renew(0.0)
        recorder.record(NOTE)
        await until(lambda: recorder.lost == 1)
        assert server.requests == []
        permission.renew(time.monotonic() + timeout())
        recorder.record(Event(NOTE.object_ref, "Normal", "Synced", "again"))
        await until(lambda: server.requests)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def test_a_write_is_under_way_until_the_server_has_answered_it() -> None:
    async with fenced(silence) as (server, kube, permission):
        reading = asyncio.create_task(kube.get("/x"))
        writing = asyncio.create_task(Performer(kube, permission, grace=1.0).perform(PATCH))
        await until(lambda: len(server.requests) == 2)
        permission.renew(0.0)
        assert kube.writes_under_way == 1
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        assert kube.writes_under_way == 0
        with pytest.raises(NotLeading):
            await kube.post("/x", {})
        assert kube.writes_under_way == 0
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
