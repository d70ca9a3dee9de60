"""What the TLS of a server may cost the process that is its client: it has one loop for all."""

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from ccm import tls
from ccm.http_client import HttpClient
from ccm.tls import Server
from tests.integration.https.hostile_tls import answer_after_updates
from tests.support.pki import Authority
from tests.unit.raw_http import HELLO, get


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
