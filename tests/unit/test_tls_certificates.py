"""Certificates that Go's library takes are taken, whatever Python's version makes of them."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from ccm.tls import Server, client_tls
from tests.support.pki import Authority

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


def test_an_authority_without_key_usage_and_key_identifiers_is_trusted(tmp_path: Path) -> None:
    """Such is what `openssl req -x509` makes, and what it signs."""
    authority = Authority("cluster", is_strict=False)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*authority.server(NAME).write(tmp_path, "server"))
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes(authority.pem)
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
