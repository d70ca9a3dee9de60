"""What no TLS library sends: hellos of any content."""

import os
import socket
import struct
from collections.abc import Mapping, Sequence

ECDSA_SHA256, RSA_PSS_SHA256 = 0x0403, 0x0804
AES_128, AES_256 = 0x1301, 0x1302
VERSIONS, GROUPS, SIGNATURES, SHARES = 43, 10, 13, 51  # numbers of extensions
RECORD = 16 << 10


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
