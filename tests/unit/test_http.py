"""The HTTP client: what becomes of responses and requests, byte by byte."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from ccm.http import request_target
from ccm.http_client import HttpClient
from ccm.processes import resident_bytes
from ccm.redaction import SECRETS_KEPT, register_secrets, safe_text
from ccm.tls import Server
from tests.support.waiting import until
from tests.unit.raw_http import BEFORE, CHUNKED, CLOSE, HELLO, STREAM, RawHttp, RawServer, get

NO_BODY = b"HTTP/1.1 204 No Content\r\n\r\n"


def singly(data: bytes) -> list[object]:
    """Every byte by itself."""
    return [data[index : index + 1] for index in range(len(data))]


async def test_a_server_on_a_unix_socket_is_reached(tmp_path: Path) -> None:
    raw, path = RawServer([HELLO]), tmp_path / "socket"
    server, client = (
        await asyncio.start_unix_server(raw.serve, path),
        HttpClient(Server(f"unix://{path}")),
    )
    assert (await get(client)).body == b"hello"
    assert raw.requests[0].startswith(b"GET /x HTTP/1.1\r\nHost: localhost\r\n")
    await client.close()
    server.close()
    await until(lambda: raw.open == 0)


# Responses.


@pytest.mark.parametrize("text", [HELLO, CHUNKED, BEFORE], ids=["length", "chunked", "hints"])
@pytest.mark.parametrize("cut", [lambda data: [data], singly], ids=["whole", "bytes"])
async def test_a_response_is_put_together(
    serving: RawHttp, text: bytes, cut: Callable[[bytes], list[object]]
) -> None:
    async with serving(cut(text), cut(HELLO)) as (raw, client):
        response = await get(client)
        assert (response.status, response.reason, response.body) == (200, "OK", b"hello")
        assert (await get(client)).header("X-WORD") == "yes"
        assert raw.connections == 1


@pytest.mark.parametrize(
    "text",
    [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 2x0 OK\r\n\r\n", b"\x16\x03\x01\x00\x05" * 4],
)
async def test_what_is_not_http_breaks_the_connection(serving: RawHttp, text: bytes) -> None:
    async with serving([text], [HELLO]) as (raw, client):
        with pytest.raises(ConnectionError, match="invalid HTTP response"):
            await get(client)
        assert (await get(client)).body == b"hello"
        assert raw.connections == 2


@pytest.mark.parametrize("cut", [0, 1, 20, len(HELLO) - 1])
async def test_an_incomplete_response_is_an_error_and_not_retried(
    serving: RawHttp, cut: int
) -> None:
    async with serving([HELLO[:cut], CLOSE], [HELLO]) as (raw, client):
        with pytest.raises(ConnectionResetError):
            await get(client)
        assert len(raw.requests) == 1


OTHER = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nX-Word: no\r\n\r\nothers"


@pytest.mark.parametrize("second", [OTHER, BEFORE, NO_BODY, OTHER[:3], b"x"])
@pytest.mark.parametrize("first", [HELLO, CHUNKED, BEFORE, NO_BODY])
async def test_two_responses_in_one_read_never_merge(
    serving: RawHttp, first: bytes, second: bytes
) -> None:
    async with serving([first + second], [HELLO]) as (raw, client):
        response = await get(client)
        assert (response.status, response.body) in ((200, b"hello"), (204, b""))
        assert response.header("X-Word") != "no"
        assert (await get(client)).body == b"hello"
        assert raw.connections == 2


ENDLESS_BODY = [STREAM, *[b"%x\r\n%b\r\n" % (1 << 20, b"x" * (1 << 20))] * 80]
ENDLESS_HEAD = [b"HTTP/1.1 200 OK\r\n", *[b"X-Word: %b\r\n" % (b"x" * 4096)] * 4000]
ENDLESS_HEADER = [b"HTTP/1.1 200 OK\r\nX-Word: ", *[b"x" * 65536] * 400]
ENDLESS_REASON = [b"HTTP/1.1 200 ", *[b"x" * 65536] * 400]
ENDLESS_CHUNKS = [STREAM, *[b"1\r\nx\r\n" * 1000] * 1000]
ENDLESS_INTERIM = [b"HTTP/1.1 102 Processing\r\n\r\n" * 100] * 400
ENDLESS_TRAILER = [STREAM + b"0\r\n", *ENDLESS_HEAD[1:]]


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (ENDLESS_BODY, "a body of more than 67108864 bytes"),
        (ENDLESS_HEAD, "heads and frames of more than 65536 bytes"),
        (ENDLESS_HEADER, "heads and frames of more than 65536 bytes"),
        (ENDLESS_REASON, "heads and frames of more than 65536 bytes"),
        (ENDLESS_CHUNKS, "heads and frames of more than 65536 bytes"),
        (ENDLESS_INTERIM, "heads and frames of more than 65536 bytes"),
        (ENDLESS_TRAILER, "heads and frames of more than 65536 bytes"),
    ],
    ids=["body", "headers", "header", "reason", "chunks", "interim", "trailer"],
)
async def test_an_answer_without_an_end_is_cut_off(
    serving: RawHttp, parts: list[object], why: str
) -> None:
    before = resident_bytes()
    async with serving(parts, [HELLO]) as (_, client):
        with pytest.raises(ConnectionError, match=why):
            await get(client)
        assert resident_bytes() - before < 150 << 20
        assert (await get(client)).body == b"hello"


# Requests.


async def test_a_request_is_serialized(serving: RawHttp) -> None:
    async with serving([HELLO], path="/base") as (raw, client):
        headers = [("Accept", "application/json")]
        await client.request("PATCH", "/a?b=c", headers, b"{}")
        port = client._connector._port
        assert raw.requests == [
            b"PATCH /base/a?b=c HTTP/1.1\r\nHost: localhost:%d\r\n"
            b"Content-Length: 2\r\nAccept: application/json\r\n\r\n{}" % port
        ]


async def test_a_credential_in_use_is_shown_in_no_text_however_many_others_there_were(
    serving: RawHttp,
) -> None:
    headers = [("Authorization", "Bearer the-only-token-there-is")]
    async with serving([HELLO], [HELLO]) as (_, client):
        await client.request("GET", "/x", headers)
        for number in range(2 * SECRETS_KEPT):
            register_secrets(f"renewed-{number:06}")
        await client.request("GET", "/x", headers)
    assert "only" not in safe_text("it was the-only-token-there-is")


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "\x00"])
async def test_no_header_can_be_injected(serving: RawHttp, value: str) -> None:
    async with serving([HELLO]) as (raw, client):
        with pytest.raises(ValueError, match="not printable"):
            await client.request("GET", "/x", [("Authorization", value)])
        with pytest.raises(ValueError, match="not printable"):
            await client.request("GET", f"/{value}", ())
        assert raw.requests == []


@pytest.mark.parametrize(
    "target",
    ["/a/../b", "/..", "/a/./b?c=d", "/a/%2e%2E", "/.%2e/", "/a/..?b", "/a b", "/a#b"],
)
async def test_no_request_leaves_for_another_place_than_its_path_names(
    serving: RawHttp, target: str
) -> None:
    """Servers and proxies may take the way up that an ID in a path can be."""
    async with serving([HELLO]) as (raw, client):
        with pytest.raises(ValueError, match="another place"):
            await client.request("GET", target, ())
        assert raw.requests == []


@pytest.mark.parametrize("target", ["/a/..b", "/a..b/...", "/.a", "/a?b=/../c", "/a?.b=.c"])
async def test_dots_that_lead_nowhere_are_sent(serving: RawHttp, target: str) -> None:
    async with serving([HELLO]) as (raw, client):
        await client.request("GET", target, ())
        assert raw.requests[0].startswith(b"GET %s HTTP" % target.encode())


@pytest.mark.parametrize(
    ("path", "params", "target"),
    [
        ("/api/v1/nodes/n-1", None, "/api/v1/nodes/n-1"),
        ("/api/a b/ü\n", None, "/api/a%20b/%C3%BC%0A"),
        ("/api/a%2Fb", None, "/api/a%2Fb"),
        ("/api?x#y", {"limit": "5", "continue": "a&b="}, "/api%3Fx%23y?limit=5&continue=a%26b%3D"),
    ],
)
def test_a_target_is_quoted_once(path: str, params: dict[str, str] | None, target: str) -> None:
    assert request_target(path, params) == target


async def test_a_long_request_is_sent_as_the_server_takes_it(serving: RawHttp) -> None:
    body = b"x" * (20 << 20)  # more than the sockets hold
    async with serving([HELLO]) as (raw, client):
        assert (await client.request("PUT", "/x", (), body)).body == b"hello"
        assert len(raw.requests[0]) > len(body)
