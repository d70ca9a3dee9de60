"""What the TLS of a server may cost the process that is its client: it has one loop for all."""

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from ccm import tls
from ccm.http_client import HttpClient
from ccm.proxy import client_context
from ccm.tls import Server
from tests.integration.https.hostile_tls import answer_after_updates
from tests.integration.https.served import Turns
from tests.support.deadlines import within
from tests.support.pki import Authority
from tests.unit.raw_http import HELLO, RawServer, get, tls_transport


@pytest.mark.parametrize(("count", "is_answer"), [(100, True), (5_000, False)])
async def test_a_server_that_updates_its_keys_without_end_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, is_answer: bool
) -> None:
    """With the socket, OpenSSL goes through all of them in one call: 3 MB took it 3 s."""
    authority, sizes, take_in = Authority("ours"), list[int](), tls.TlsSocket.take_in

    def noted(one: tls.TlsSocket, data: bytes) -> None:
        sizes.append(len(data))
        take_in(one, data)

    monkeypatch.setattr(tls.TlsSocket, "take_in", noted)
    (tmp_path / "ca").write_bytes(authority.pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.server("localhost").write(tmp_path, "server"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        arguments = listening, context, count, tmp_path / "keys", HELLO
        serving = asyncio.create_task(asyncio.to_thread(answer_after_updates, *arguments))
        port = listening.getsockname()[1]
        client = HttpClient(Server(f"https://localhost:{port}", str(tmp_path / "ca")))
        if is_answer:
            assert (await get(client)).body == b"hello"
        else:
            with pytest.raises(ConnectionAbortedError):
                await get(client)
        await client.close()
        await serving
    assert max(sizes) <= tls.RECORD_SIZE


def test_no_server_chooses_how_long_a_key_is() -> None:
    """With DHE of 10,000 bits a connection took 0.9 s of one turn of the loop."""
    ciphers = [cipher["name"] for cipher in client_context().get_ciphers()]
    assert [name for name in ciphers if name.startswith("DHE-")] == []
    assert {"TLS_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"} <= {*ciphers}


async def test_a_turn_of_the_loop_has_one_step_of_a_handshake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a key of 8,192 bits, which TLS 1.3 has, one takes 0.15 s, and eight begin at once."""
    turns, go_on = Turns(), ssl.SSLObject.do_handshake
    below, answer = tls_transport(tmp_path), list[object]([HELLO])
    raw = RawServer(*[answer] * 8)

    def noted(records: ssl.SSLObject) -> None:
        if not records.server_side:
            turns.note()
        go_on(records)

    async with raw.listening(below.server_tls) as port, within():
        client = HttpClient(Server(f"https://localhost:{port}", below.authority_file))
        async with turns.counted():
            monkeypatch.setattr(ssl.SSLObject, "do_handshake", noted)
            await asyncio.gather(*(get(client) for _ in range(8)))
        await client.close()
    assert len(turns.noted) >= 16
    assert len({*turns.noted}) == len(turns.noted)
