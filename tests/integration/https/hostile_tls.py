"""What no TLS library sends: hellos of any content, and updates of keys without end."""

import hashlib
import hmac
import os
import socket
import ssl
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.support.deadlines import timeout
from tests.support.pki import trusting_anybody

ECDSA_SHA256, RSA_PSS_SHA256 = 0x0403, 0x0804
AES_128, AES_256 = 0x1301, 0x1302
VERSIONS, GROUPS, SIGNATURES, SHARES = 43, 10, 13, 51  # numbers of extensions
RECORD = 16 << 10
UPDATE_KEY = b"\x18\x00\x00\x01\x00\x16"  # the message, for which no answer is asked, and its type
TICKET = b"\x04\x00\x00\x0e" + struct.pack(">IIB", 3600, 1, 0) + b"\x00\x01x" + bytes(2)
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


def _sized(content: bytes) -> bytes:
    return struct.pack(">H", len(content)) + content


def _numbers(numbers: Sequence[int]) -> bytes:
    return _sized(struct.pack(f">{len(numbers)}H", *numbers))


def client_hello(
    groups: Sequence[int],
    shares: Mapping[int, bytes],
    signatures: Sequence[int] = (ECDSA_SHA256, RSA_PSS_SHA256),
) -> bytes:
    """Records of TLS 1.3 with these groups, and a share of the key exchange for some of them."""
    extensions = {
        VERSIONS: b"\x02\x03\x04",
        GROUPS: _numbers(groups),
        SIGNATURES: _numbers(signatures),
        SHARES: _sized(
            b"".join(struct.pack(">H", group) + _sized(key) for group, key in shares.items())
        ),
    }
    listed = b"".join(struct.pack(">H", kind) + _sized(it) for kind, it in extensions.items())
    session, compression = b"\x20" + bytes(32), b"\x01\x00"
    suites = _numbers([AES_128, AES_256])
    body = b"\x03\x03" + os.urandom(32) + session + suites + compression + _sized(listed)
    message = b"\x01" + struct.pack(">I", len(body))[1:] + body
    parts = (message[at : at + RECORD] for at in range(0, len(message), RECORD))
    return b"".join(b"\x16\x03\x01" + _sized(part) for part in parts)


def is_answered(port: int, hello: bytes) -> bool:
    """Whether a server goes on with the handshake."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        try:
            client.sendall(hello)
            return client.recv(1) == b"\x16"
        except ConnectionError:
            return False


def _expand(secret: bytes, label: bytes, size: int, digest: str) -> bytes:
    """RFC 8446, 7.1; one block is enough for all that is asked for here."""
    label = b"tls13 " + label
    info = struct.pack(">HB", size, len(label)) + label + b"\x00\x01"
    return hmac.new(secret, info, digest).digest()[:size]


def _record(secret: bytes, key_size: int, digest: str, message: bytes) -> bytes:
    """The first one under the keys of this secret."""
    header = b"\x17\x03\x03" + struct.pack(">H", len(message) + 16)
    key, nonce = (
        _expand(secret, label, size, digest) for label, size in ((b"key", key_size), (b"iv", 12))
    )
    return header + AESGCM(key).encrypt(nonce, message, header)


def _secret(connection: ssl.SSLSocket, side: str, log: Path) -> tuple[bytes, str, int]:
    """The first one of a side, with its digest and the size of its keys."""
    suite, _, _ = connection.cipher() or ("", "", 0)
    digest, key_size = ("sha384", 32) if suite.endswith("384") else ("sha256", 16)
    words = (line.split() for line in log.read_text().splitlines())
    secret = bytes.fromhex(next(it[2] for it in words if it[0] == f"{side}_TRAFFIC_SECRET_0"))
    return secret, digest, key_size


def _updates(connection: ssl.SSLSocket, side: str, count: int, log: Path, last: bytes) -> bytes:
    """So many updates of the key of a side, and a last record under the newest one."""
    secret, digest, key_size = _secret(connection, side, log)
    sent = list[bytes]()
    for _ in range(count):
        sent.append(_record(secret, key_size, digest, UPDATE_KEY))
        secret = _expand(secret, b"traffic upd", hashlib.new(digest).digest_size, digest)
    sent.append(_record(secret, key_size, digest, last + b"\x17"))
    return b"".join(sent)


def is_served_after_updates(port: int, count: int, log: Path) -> bool:
    """Whether a request is answered that comes after so many updates of the client's key."""
    context = trusting_anybody()
    context.keylog_filename = str(log)
    connection = context.wrap_socket(socket.create_connection(("127.0.0.1", port)))
    sent = _updates(connection, "CLIENT", count, log, REQUEST)
    with socket.socket(fileno=connection.detach()) as plain:
        plain.settimeout(timeout())
        try:
            plain.sendall(sent)
            return plain.recv(1) == b"\x17"
        except ConnectionError:
            return False


def answer_after_updates(
    listening: socket.socket, context: ssl.SSLContext, count: int, log: Path, answer: bytes
) -> None:
    """Answer the request of one client, after so many updates of the server's key."""
    context.num_tickets = 0  # they would be records as well
    context.keylog_filename = str(log)
    accepted, _ = listening.accept()
    connection = context.wrap_socket(accepted, server_side=True)
    connection.recv(RECORD)
    sent = _updates(connection, "SERVER", count, log, answer)
    with socket.socket(fileno=connection.detach()) as plain, suppress(ConnectionError):
        plain.sendall(sent)
        plain.recv(1)


def is_left_after_tickets(
    listening: socket.socket, context: ssl.SSLContext, count: int, log: Path
) -> bool:
    """Whether a client goes whose request is answered by so many records of tickets."""
    context.num_tickets = 0
    context.keylog_filename = str(log)
    accepted, _ = listening.accept()
    connection = context.wrap_socket(accepted, server_side=True)
    connection.recv(RECORD)
    secret, digest, key_size = _secret(connection, "SERVER", log)
    key, first = _expand(secret, b"key", key_size, digest), _expand(secret, b"iv", 12, digest)
    message = TICKET * (RECORD // len(TICKET) - 1) + b"\x16"
    header = b"\x17\x03\x03" + struct.pack(">H", len(message) + 16)
    with socket.socket(fileno=connection.detach()) as plain, suppress(OSError):
        plain.settimeout(timeout(2.0))
        for number in range(count):
            nonce = (int.from_bytes(first, "big") ^ number).to_bytes(12, "big")
            plain.sendall(header + AESGCM(key).encrypt(nonce, message, header))
        return False
    return True
