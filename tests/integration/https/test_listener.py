"""Connections: clients that are rude, slow or many cost nobody else anything."""

import asyncio
import os
import socket
import ssl
import zlib
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from select import select
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from ccm.processes import resident_bytes
from ccm.supervisor import listening as listening_module
from ccm.supervisor.https import listener as listener_module
from ccm.supervisor.https.endpoints import Exposition
from ccm.supervisor.https.listener import (
    ALL_HANDSHAKES,
    LOCAL,
    TLS_HANDSHAKE,
    TlsListener,
    to_close,
)
from ccm.supervisor.https.shared import SharedDocuments
from tests.integration.https.review_api import ReviewApi
from tests.integration.https.served import (
    QUICK,
    LocalServer,
    Turns,
    connected,
    pipeline,
    serving,
    serving_routes,
    who,
)
from tests.support.deadlines import timeout, within
from tests.support.pki import trusting_anybody
from tests.support.rows import row
from tests.support.waiting import until


async def greeted(
    server: LocalServer, source: str = "127.0.0.1"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection with TLS that asks for nothing."""
    return await asyncio.open_connection(
        "127.0.0.1", server.port, ssl=trusting_anybody(), local_addr=(source, 0)
    )


@pytest.mark.parametrize("words", [b"", b"GET /healthz HTTP/1.1\r\n\r\n", b"\x16\x03\x01" * 99])
async def test_a_client_without_tls_harms_no_one(
    reviews: ReviewApi, words: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(reviews) as server:
        for _ in range(20):
            with connected(server) as rude:
                rude.sendall(words)
        assert (await server.get("/healthz")).status == 200
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


async def test_when_there_are_too_many_the_oldest_goes_and_a_probe_gets_its_answer(
    reviews: ReviewApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "MAX_CONNECTIONS", 10)
    async with serving(reviews) as server:
        with ExitStack() as held:
            first = await greeted(server)
            held.callback(first[1].close)
            for _ in range(30):
                held.callback((await greeted(server))[1].close)
                assert (await server.get("/healthz")).status == 200
            # One is accepted before the oldest goes, and that takes a turn of the loop.
            await until(lambda: site_connections(server) <= 10)
            assert await first[0].read() == b""


@pytest.fixture(autouse=True)
def other_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses of loopback but 127.0.0.1 stand for those of other hosts."""
    monkeypatch.setattr(listener_module, "LOOPBACK", "none")


PATIENT = replace(QUICK, handshake_timeout=3600.0)
"""Where no connection is closed but for another one."""


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten silent connections have room, and the kernel holds none back."""
    monkeypatch.setattr(listening_module, "SILENCE", 0)
    monkeypatch.setattr(listener_module, "MAX_HANDSHAKES", 10)


@pytest.mark.usefixtures("little_room")
async def test_silent_connections_close_no_client_and_hold_up_no_probe(
    reviews: ReviewApi,
) -> None:
    async with serving(reviews, PATIENT) as server:
        with ExitStack() as held:
            reader, writer = await greeted(server)
            held.callback(writer.close)
            for _ in range(30):
                held.enter_context(connected(server))
                assert (await server.get("/healthz")).status == 200
            await until(lambda: site_connections(server) <= 11)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b" 200 " in await reader.readline()


async def test_the_kernel_holds_back_who_is_silent(server: LocalServer) -> None:
    with ExitStack() as held:
        for _ in range(30):
            held.enter_context(connected(server))
        assert (await server.get("/healthz")).status == 200
        await until(lambda: site_connections(server) == 0)


@pytest.mark.usefixtures("little_room")
async def test_silent_connections_close_no_client_in_its_handshake(
    reviews: ReviewApi,
) -> None:
    """It takes a client a while, and a thousand may connect meanwhile."""
    async with serving(reviews, PATIENT) as server:
        with ExitStack() as held:
            client = held.enter_context(await in_handshake(server))
            for number in range(30):
                held.enter_context(connected(server, f"127.0.3.{number + 1}"))
            await until(lambda: site_connections(server) <= 11)
            assert await asyncio.to_thread(is_healthy, client)


async def test_those_who_begin_at_once_close_no_client_in_its_handshake(
    reviews: ReviewApi,
) -> None:
    """A third of a thousand of this host do, before the client is there for its part."""
    async with serving(reviews, PATIENT) as server:
        with ExitStack() as held:
            client = held.enter_context(await in_handshake(server))
            for _ in range(330):
                held.enter_context(connected(server)).sendall(TLS_HANDSHAKE)
            assert (await server.get("/healthz")).status == 200  # it is accepted after all those
            assert await asyncio.to_thread(is_healthy, client)


async def in_handshake(server: LocalServer) -> ssl.SSLSocket:
    """A client that has said hello, whose next part is due."""
    client = trusting_anybody().wrap_socket(connected(server), do_handshake_on_connect=False)
    client.settimeout(0.0)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    await until(lambda: select([client], [], [], 0.0)[0], "the server answers")
    return client


def is_healthy(client: ssl.SSLSocket) -> bool:
    """What the server answers, after the rest of the handshake."""
    client.settimeout(timeout())
    client.do_handshake()
    client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    return client.recv(1 << 10).startswith(b"HTTP/1.1 200 ")


async def test_what_speaks_no_tls_costs_none(
    reviews: ReviewApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS takes four times what a silent connection does."""
    loop, set_up = asyncio.get_running_loop(), 0
    accept = loop.connect_accepted_socket

    async def count(*connection: Any, **how: Any) -> Any:
        nonlocal set_up
        set_up += 1
        return await accept(*connection, **how)

    monkeypatch.setattr(loop, "connect_accepted_socket", count)
    async with serving(reviews) as server:
        for words in (b"", b"GET /healthz HTTP/1.1\r\n\r\n"):
            for _ in range(20):
                with connected(server) as rude:
                    rude.sendall(words)
        assert (await server.get("/healthz")).status == 200
    assert set_up == 1


async def test_handshakes_without_end_of_one_address_cost_no_other_its_time(
    reviews: ReviewApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes milliseconds of the loop that renews the Lease."""
    monkeypatch.setattr(listener_module, "HANDSHAKES", 5)
    monkeypatch.setattr(listener_module, "HANDSHAKE_PAUSE", 600.0)
    async with serving(reviews) as server:
        with ExitStack() as held:
            for _ in range(listener_module.HANDSHAKES):
                held.callback((await greeted(server, "127.0.1.1"))[1].close)
            for _ in range(5):
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await greeted(server, "127.0.1.1")
            held.callback((await greeted(server, "127.0.1.2"))[1].close)
            assert (await server.get("/healthz")).status == 200


async def test_a_flood_of_other_clients_takes_no_slot_of_this_host(
    reviews: ReviewApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening_module, "SILENCE", 0)
    monkeypatch.setattr(listener_module, "MAX_HANDSHAKES", 100)
    async with serving(reviews) as server:
        with ExitStack() as held:
            for number in range(500):
                held.enter_context(connected(server, f"127.0.1.{number % 3 + 1}"))
                if number % 25 == 0:
                    assert (await server.get("/healthz")).status == 200
            await until(lambda: site_connections(server) <= listener_module.MAX_HANDSHAKES)
            assert (await server.get("/healthz")).status == 200


def test_who_holds_most_loses_the_oldest() -> None:
    held = {1: "a", 2: "b", 3: LOCAL, 4: "b", 5: LOCAL, 6: LOCAL}
    assert to_close(held, 7) is None
    assert to_close(held, 6) == 2
    assert to_close({1: LOCAL, 2: LOCAL}, 2) == 1
    assert to_close({1: LOCAL, 2: "a"}, 2) == 2


def test_who_had_a_permitted_request_goes_after_unknown_ones() -> None:
    held = {1: "scraper", 2: "b", 3: "c", 4: LOCAL}
    assert to_close(held, 4, {1}.__contains__) == 2
    assert to_close({1: "scraper", 4: LOCAL}, 2, {1}.__contains__) == 1
    assert to_close({1: "a", 2: "b", 3: "b"}, 3, {1, 2, 3}.__contains__) == 2


def test_other_users_of_this_host_close_no_client_of_others() -> None:
    held = {1: "scraper", 2: LOCAL, 3: LOCAL, 4: LOCAL, 5: "b"}
    assert to_close(held, 5, {1, 5}.__contains__) == 2
    assert to_close(held, 5, {1, 2, 5}.__contains__) == 3
    assert to_close(held, 5, {1, 2, 3, 4, 5}.__contains__) == 2


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (b"", b""),
        (b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n", b" 404 "),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer tenant\r\n\r\n", b" 200 "),
    ],
)
async def test_clients_of_many_addresses_close_no_client_that_was_permitted(
    reviews: ReviewApi, monkeypatch: pytest.MonkeyPatch, words: bytes, status: bytes
) -> None:
    """Everybody has a permission for /version and /healthz, as those of an API server are public.

    Each Pod has a token besides.
    """
    monkeypatch.setattr(listener_module, "MAX_CONNECTIONS", 10)
    reviews.add_token("good", "alice", "dev")
    reviews.allow("dev", "/page")
    reviews.add_token("tenant", "bob")
    reviews.allow("system:unauthenticated", "/version")
    reviews.allow("system:authenticated", "/healthz")
    asked = b"GET /page HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n\r\n"
    async with serving(reviews, authorization_always_allow_paths=("/livez",)) as server:
        with ExitStack() as held:
            reader, writer = await greeted(server, "127.0.2.1")
            held.callback(writer.close)
            writer.write(asked)
            assert b" 200 " in await reader.readline()
            for number in range(30):
                stranger = await greeted(server, f"127.0.3.{number + 1}")
                held.callback(stranger[1].close)
                stranger[1].write(words)
                assert not words or status in await stranger[0].readline()
            await until(lambda: site_connections(server) <= 10)
            writer.write(asked)
            await reader.readuntil(b"HTTP/1.1 200 ")


def site_connections(server: LocalServer) -> int:
    """Sockets of the server that are connected."""
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table][1:]
    port = f"0100007F:{server.port:04X}"
    return sum(row[1] == port and row[3] == "01" and row[9] != "0" for row in rows)


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_client_that_pipelines_takes_no_memory(reviews: ReviewApi, hangs: bool) -> None:
    if hangs:
        reviews.hangs = asyncio.Event()
    async with serving(reviews) as server:
        before = resident_bytes()
        sent = await asyncio.to_thread(pipeline, server)
        assert sent < 16 << 20
        assert resident_bytes() - before < 32 << 20
        assert (await server.get("/healthz")).status == 200


HEADERS = b"".join(b"X-%d: %s\r\n" % (number, b"a" * 8000) for number in range(120))
HEAD = b"GET /page HTTP/1.1\r\nHost: x\r\n"


def is_ended(server: LocalServer, sent: bytes) -> bool:
    """Whether the server ends a connection on which this comes."""
    with trusting_anybody().wrap_socket(connected(server)) as rude:
        rude.settimeout(1.0)
        try:
            for at in range(0, len(sent), 1 << 16):
                rude.sendall(sent[at : at + (1 << 16)])
            return rude.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(HEAD + HEADERS, id="a head that does not end"),
        pytest.param(HEAD + b"\r\n" + (HEAD + HEADERS + b"\r\n") * 8, id="behind another one"),
    ],
)
async def test_what_is_not_handled_yet_takes_no_memory(reviews: ReviewApi, sent: bytes) -> None:
    """On 200 connections, also of one address, it would be more than a Pod of ours may have."""
    reviews.hangs = asyncio.Event()
    async with serving(reviews) as server:
        assert await asyncio.to_thread(is_ended, server, sent)
        assert (await server.get("/healthz")).status == 200


async def test_a_body_of_many_chunks_ends_the_connection(server: LocalServer) -> None:
    """Each chunk of one byte takes as long as a small request, and none is for anything."""
    asked = b"POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk, end = b"1\r\nx\r\n", b"0\r\n\r\n"
    reader, writer = await greeted(server)
    writer.write((asked + chunk * 10 + end) * 10)
    async with within():
        for _ in range(10):
            await reader.readuntil(b" 405 ")
        writer.write(asked + chunk * 30_000 + end + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        with suppress(ConnectionError):
            assert b" 200 " not in await reader.read()
    writer.close()


async def test_a_client_may_send_what_it_likes_as_long_as_it_is_handled(
    server: LocalServer, reviews: ReviewApi
) -> None:
    asked = HEAD + HEADERS[: 40 << 10].rpartition(b"X-")[0] + b"\r\n"
    reader, writer = await greeted(server)
    for _ in range(10):
        writer.write(asked)
        assert b" 403 " in await reader.readline()
        await reader.readuntil(b'"code":403}')
    writer.close()


@pytest.mark.timings(handshake_timeout=0.05)
async def test_a_handshake_that_takes_too_long_is_given_up(server: LocalServer) -> None:
    with connected(server) as slow:
        slow.settimeout(timeout())
        assert await asyncio.to_thread(slow.recv, 1) == b""


async def test_a_request_that_never_ends_leaves_the_stop_to_others(reviews: ReviewApi) -> None:
    reviews.hangs = asyncio.Event()
    async with serving(reviews) as server:
        asking = asyncio.create_task(server.get("/page"))
        await until(lambda: reviews.counts["SubjectAccessReview"])
        asking.add_done_callback(lambda task: task.exception())
    async with within():
        await asyncio.wait({asking})


def mute(server: LocalServer) -> ssl.SSLSocket:
    """A connection that was answered and does nothing by itself any more, not even TLS."""
    made = trusting_anybody().wrap_socket(connected(server))
    made.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert made.recv(1)
    return made


async def test_a_client_that_does_not_say_goodbye_is_not_waited_for(reviews: ReviewApi) -> None:
    async with serving(reviews) as server:
        with await asyncio.to_thread(mute, server):
            await server.https.close()
            await until(lambda: not site_connections(server))


async def test_the_server_offers_no_http2(server: LocalServer) -> None:
    tls = trusting_anybody()
    tls.set_alpn_protocols(["h2", "http/1.1"])
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=tls)
    connection: ssl.SSLObject = writer.get_extra_info("ssl_object")
    assert connection.selected_alpn_protocol() != "h2"
    writer.close()


@row("OP3", "OP5")
async def test_only_the_flags_address_and_port_are_listened_on(reviews: ReviewApi) -> None:
    """There are no webhooks, so their port has a default and no listener."""
    before = listening()
    async with serving(reviews, webhook_bind_address="127.0.0.1") as server:
        assert listening() - before == {("0100007F", server.port)}
    assert listening() == before


def listening() -> set[tuple[str, int]]:
    """Addresses, in the kernel's hexadecimal form, and ports that this process listens on."""
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    sockets = {os.readlink(link) for link in links if os.path.islink(link)}
    with open("/proc/self/net/tcp") as table:
        rows = [line.split() for line in table][1:]
    found = (
        row[1].split(":") for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets
    )
    return {(address, int(port, 16)) for address, port in found}


@pytest.mark.parametrize(
    "nonsense", [b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"A" * 20_000 + b"\r\n\r\n"]
)
async def test_what_is_no_http_is_answered_and_not_logged(
    reviews: ReviewApi, nonsense: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(reviews) as server:
        reader, writer = await greeted(server)
        writer.write(nonsense)
        assert b" 400 " in await reader.readline()
        writer.close()
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


async def test_what_a_handler_does_not_take_is_logged_once(
    reviews: ReviewApi, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the metrics are open, any client may send it without end: a traceback each."""
    route = web.get("/metrics", Exposition(CollectorRegistry(), SharedDocuments()).answer)
    flags = {"master": reviews.url, "authorization_always_allow_paths": ("/metrics",)}
    async with serving_routes([route], **flags) as server:
        odd = [("Accept", "text/plain;version=x")]
        codes = {(await server.get("/metrics", headers=odd)).status for _ in range(20)}
    assert codes == {500}
    assert len(caplog.records) == 1


def unanswered_goodbye(server: LocalServer) -> ssl.SSLSocket:
    """A connection that the server closes, as was asked, and the client does not."""
    made = trusting_anybody().wrap_socket(connected(server))
    made.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert made.recv(1)
    return made


def unread_answer(server: LocalServer) -> ssl.SSLSocket:
    """A connection that the client closes for TLS, without taking in what it asked for."""
    made = trusting_anybody().wrap_socket(connected(server))
    made.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert made.recv(1)
    with suppress(OSError):  # there is something to read
        made.settimeout(0)
        made.unwrap()
    return made


@pytest.mark.parametrize("hold", [unanswered_goodbye, unread_answer])
async def test_a_connection_that_its_client_does_not_let_close_counts_as_open(
    reviews: ReviewApi, monkeypatch: pytest.MonkeyPatch, hold: Callable[[LocalServer], Any]
) -> None:
    """They took all descriptors, for 30 s or for ever."""
    monkeypatch.setattr(listener_module, "MAX_CONNECTIONS", 5)

    async def page(request: web.Request) -> web.Response:
        return web.Response(body=bytes(12 << 20 if hold is unread_answer else 1))

    routes = web.get("/healthz", page), web.get("/livez", who)
    async with serving_routes(routes, master=reviews.url) as server:
        with ExitStack() as held:
            for _ in range(10):
                held.enter_context(await asyncio.to_thread(hold, server))
            assert (await server.get("/livez")).status == 200
            assert site_connections(server) <= 5


async def test_connections_without_end_of_one_address_are_closed_at_once(
    reviews: ReviewApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else those that wait to be accepted leave no room for a probe."""
    monkeypatch.setattr(listener_module, "HANDSHAKES", 5)
    monkeypatch.setattr(listener_module, "HANDSHAKE_PAUSE", 3600.0)
    async with serving(reviews) as server:
        rude = [connected(server, "127.0.0.2") for _ in range(20)]
        for client in rude:
            client.sendall(TLS_HANDSHAKE)  # the kernel holds back who is silent
        await until(lambda: sum(map(is_closed, rude)) == 15)
        for source in ("127.0.0.1", "127.0.0.3"):
            assert (await server.get("/healthz", source=source)).status == 200
        for client in rude:
            client.close()


@pytest.mark.parametrize("others", ["127.0.0.", "none"])
async def test_connections_without_end_of_this_host_or_many_addresses_are_closed_at_once(
    reviews: ReviewApi, monkeypatch: pytest.MonkeyPatch, others: str
) -> None:
    """Turns of the loop took 0.1 s, in which 64 each were begun, and more than a second at most."""
    monkeypatch.setattr(listener_module, "LOOPBACK", others)
    monkeypatch.setattr(listener_module, "ALL_HANDSHAKES", 5)
    monkeypatch.setattr(listener_module, "ALL_PAUSE", 3600.0)
    async with serving(reviews) as server:
        with ExitStack() as held:
            rude = [
                held.enter_context(connected(server, f"127.0.0.{number + 2}"))
                for number in range(20)
            ]
            for client in rude:
                client.sendall(TLS_HANDSHAKE)
            await until(lambda: sum(map(is_closed, rude)) == 15)
            source = "127.0.0.1" if others == "none" else "127.0.1.1"
            assert (await server.get("/healthz", source=source)).status == 200


async def test_no_route_is_looked_for_by_thousands_of_beginnings_of_a_path(
    server: LocalServer, reviews: ReviewApi
) -> None:
    """The search takes ten milliseconds of the loop, without credentials, too."""
    assert (await server.get("/page")).status == 403
    before = reviews.counts["SubjectAccessReview"]
    assert (await server.get("/page" + 4000 * "/")).status == 404
    assert reviews.counts["SubjectAccessReview"] == before


@pytest.mark.parametrize("expect", [b"", b"Expect: a\r\n"])
async def test_one_request_is_answered_in_a_turn_of_the_loop(
    reviews: ReviewApi, expect: bytes
) -> None:
    """Of many that wait on many connections a renewal of the Lease would wait for all."""
    turns = Turns()

    async def page(request: web.Request) -> web.Response:
        turns.note()
        return web.Response()

    async def refuse(request: web.Request) -> web.Response:  # aiohttp does by itself
        turns.note()
        raise web.HTTPExpectationFailed

    route = web.get("/healthz", page, expect_handler=refuse)
    async with serving_routes([route], master=reviews.url) as server:
        clients = [await greeted(server) for _ in range(10)]
        async with turns.counted():
            for _, writer in clients:
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n%b\r\n" % expect * 10)
            await until(lambda: len(turns.noted) == 100)
        for _, writer in clients:
            writer.close()
    assert len({*turns.noted}) == 100


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.usefixtures("little_room")
async def test_connections_that_wait_are_accepted_together(
    reviews: ReviewApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn of the loop may be long, and a probe comes after all that connected before."""
    turns, address_of = Turns(), listener_module._client_address

    def noted(connection: socket.socket) -> str:
        turns.note()
        return address_of(connection)

    monkeypatch.setattr(listener_module, "_client_address", noted)
    async with turns.counted(), serving(reviews, PATIENT) as server:
        with ExitStack() as held:
            silent = [held.enter_context(connected(server)) for _ in range(50)]
            await until(lambda: len(turns.noted) == 50)
            assert len({*turns.noted}) < 10
            await until(
                lambda: sum(map(is_closed, silent)) == 40, "those beyond the limit are closed"
            )


@pytest.mark.usefixtures("little_room")
async def test_clients_that_are_accepted_together_do_not_close_one_another(
    reviews: ReviewApi,
) -> None:
    """They have spoken, as those have that take all room, and are read some turns later."""
    async with serving(reviews, PATIENT) as server:
        with ExitStack() as held:

            def begin(number: int) -> socket.socket:
                client = held.enter_context(connected(server, f"127.0.3.{number + 1}"))
                client.sendall(TLS_HANDSHAKE)
                return client

            before = [begin(number) for number in range(10)]
            await until(lambda: site_connections(server) == 10)
            together = [begin(number) for number in range(10, 16)]
            await until(lambda: sum(map(is_closed, before)) == 6)
            assert not any(map(is_closed, together))


async def test_a_url_that_no_parser_takes_is_logged_once(
    server: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Any client may send one without end, and asyncio logs a traceback for each."""
    for _ in range(20):
        reader, writer = await greeted(server)
        writer.write(b"GET http://[::1]@/ HTTP/1.1\r\nHost: x\r\n\r\n")
        async with within():
            await reader.read()
        writer.close()
    assert (await server.get("/healthz")).status == 200
    assert sum(record.name == "asyncio" for record in caplog.records) == 1


def bomb() -> bytes:
    """Some 50 KB that unpack to 50 MB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packer.compress(bytes(50 << 20)) + packer.flush()


async def test_a_body_is_never_unpacked(
    reviews: ReviewApi, caplog: pytest.LogCaptureFixture
) -> None:
    """Any client of the port may send one, and the supervisor would renew no Lease meanwhile."""
    body, lengths = bomb(), list[int]()

    async def page(request: web.Request) -> web.Response:
        lengths.append(len(await request.read()))
        return web.Response()

    async with serving_routes([web.post("/healthz", page)], master=reviews.url) as server:
        for encoding in (b"gzip", b"deflate", b"br", b"zstd"):
            reader, writer = await greeted(server)
            writer.write(b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Encoding: " + encoding)
            writer.write(b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            async with within():
                assert b" 200 " in await reader.readline()
            writer.close()
    assert lengths == [len(body)] * 4
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def test_silent_connections_without_end_have_no_client_refused_that_has_spoken() -> None:
    """A thousand of this host at once had probes closed for a second."""
    with socket.socket() as listening:
        listener = TlsListener(listening, lambda *_: pytest.fail("no TLS"))
        silent = [listener._is_refused(LOCAL, has_spoken=False) for _ in range(2 * ALL_HANDSHAKES)]
        assert silent.count(True) > ALL_HANDSHAKES / 2
        assert not listener._is_refused(LOCAL, has_spoken=True)
