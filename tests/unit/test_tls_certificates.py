"""Certificates that Go's library takes are taken, whatever Python's version makes of them."""

import os
import ssl
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from ccm.tls import Server, client_tls
from tests.support.pki import Authority, Signed, self_signed

NAME = "api.example"


@pytest.fixture(autouse=True)
def as_of_python_3_13(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its default context is strict about RFC 5280."""
    usual = ssl.create_default_context

    def strict(**options: Any) -> ssl.SSLContext:
        context = usual(**options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)


def handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """In memory; raises what either end finds wrong."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=NAME),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while ends:
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)


ROOT, LOOSE = Authority("root"), Authority("loose", is_strict=False)
MIDDLE = Authority("middle", ROOT)
LEAF = MIDDLE.server(NAME)
SELF_SIGNED = self_signed(NAME)


@pytest.mark.parametrize(
    ("trusted", "shown"),
    [
        pytest.param(ROOT.own, ROOT.server(NAME), id="as-in-RFC-5280"),
        pytest.param(LOOSE.own, LOOSE.server(NAME), id="without-key-usage-and-key-identifiers"),
        pytest.param(MIDDLE.own, MIDDLE.server(NAME), id="an-intermediate-authority-alone"),
        pytest.param(SELF_SIGNED, SELF_SIGNED, id="the-certificate-itself-signed-by-itself"),
        pytest.param(LEAF, LEAF, id="the-certificate-itself-signed-by-another"),
    ],
)
def test_what_go_trusts_is_trusted(trusted: Signed, shown: Signed, tmp_path: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*shown.write(tmp_path, "server"))
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes(trusted.pem)
    client = client_tls(Server(f"https://{NAME}", str(ca_file)))
    assert client
    handshake(client, server)


def test_a_certificate_of_another_authority_is_still_refused(tmp_path: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*Authority("another").server(NAME).write(tmp_path, "server"))
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes(Authority("cluster").pem)
    client = client_tls(Server(f"https://{NAME}", str(ca_file)))
    assert client
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(client, server)


def test_no_file_of_a_certificate_keeps_a_process_waiting(tmp_path: Path) -> None:
    """Neither for who writes into a pipe, nor for a pass phrase on the terminal."""
    os.mkfifo(pipe := tmp_path / "pipe")
    writer = Thread(target=pipe.write_bytes, args=[b""], daemon=True)
    writer.start()  # who waits nevertheless gets something, and the test its end
    certificate, key = map(Path, ROOT.server(NAME).write(tmp_path, "client"))
    for server in (
        Server(f"https://{NAME}", str(pipe)),
        Server(f"https://{NAME}", cert_file=str(certificate), key_file=str(pipe)),
    ):
        with pytest.raises(OSError, match="not a regular file"):
            client_tls(server)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer.join()  # which may not have come as far as the pipe before
    os.close(reader)
    private = load_pem_private_key(key.read_bytes(), None)
    locked = private.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"phrase")
    )
    key.write_bytes(locked)
    with pytest.raises(ssl.SSLError):
        client_tls(Server(f"https://{NAME}", cert_file=str(certificate), key_file=str(key)))
