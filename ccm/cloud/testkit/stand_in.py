"""A stand-in for a cloud that speaks JSON over HTTP: it counts requests, and fails on request."""

import json
import sys
import threading
import time
from collections import defaultdict
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ccm.cloud.testkit.adapter import Adapter, FaultKind
from ccm.model.objects import Json

Reply = tuple[int, object]
"""Status and JSON."""

STATUS = {
    FaultKind.DENIED: 403,
    FaultKind.THROTTLED: 429,
    FaultKind.ERROR: 500,
    FaultKind.HUGE: 400,
}
HUGE = "\x1b[31mno\n" * 600_000
DRIP = 0.02  # seconds from one byte to the next


class StandInAdapter(Adapter):
    """An adapter that is its cloud: `reply` says what the cloud answers.

    The cloud is a server on loopback at `url`, in threads of this process, with a certificate of
    the authority in `ca_file`. The `token` that it takes is in `token_file`. `tables` are its
    records by kind and ID; a `reset` begins with `clear`.
    """

    fault_kinds = tuple(FaultKind)
    token_header = "Authorization"
    """In which header the provider shows the token."""

    def __init__(self) -> None:
        self.tables = defaultdict[str, dict[str, Json]](dict)
        self._numbers = count(1)

    def add(self, kind: str, **record: Any) -> Json:
        """A new record, with the initial of its kind and a number as its ID."""
        ref = f"{kind[0]}-{next(self._numbers)}"
        return self.tables[kind].setdefault(ref, {"id": ref, **record})

    def snapshot(self) -> object:
        return json.dumps({kind: table for kind, table in self.tables.items() if table})

    def reply(self, method: str, target: str, body: Any, token: str) -> Reply:
        """The answer to a request; the token is the last word of its `token_header`."""
        raise NotImplementedError

    def error(self, message: str) -> object:
        """An error as this cloud writes it."""
        return {"message": message}

    def start(self) -> None:
        self._directory = TemporaryDirectory()
        self.token_file, self.ca_file = (
            Path(self._directory.name, item) for item in ("token", "ca")
        )
        self._context = SSLContext(PROTOCOL_TLS_SERVER)
        self.renew_credentials()
        self._elsewhere = _Server(self)
        self._server = _Server(self, self._elsewhere.url)
        self.renew_certificate()
        self._server.socket = self._context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = self._server.url.replace("http://127.0.0.1", "https://localhost")

    def stop(self) -> None:
        for server in (self._server, self._elsewhere):
            server.fault = None
            server.shutdown()
            server.server_close()
        self._directory.cleanup()

    def clear(self) -> None:
        """An empty cloud with new credentials."""
        self.tables.clear()
        self.renew_credentials()

    def refuse_credentials(self) -> None:
        self.token = ""

    def renew_credentials(self) -> None:
        self.token = f"token-{uuid4()}"
        self.token_file.write_text(self.token)
        self.secrets = (self.token,)

    def renew_certificate(self) -> None:
        certificate, key = _certificate()
        file = self.ca_file.with_name("server")
        file.write_bytes(certificate + key)
        self._context.load_cert_chain(file)
        self.ca_file.write_bytes(certificate)
        self._server.renewed += 1

    def count_calls(self) -> int:
        return self._server.calls

    def count_calls_elsewhere(self) -> int:
        return self._elsewhere.calls

    def inject_fault(self, kind: FaultKind) -> None:
        self._server.fault = kind

    def clear_fault(self) -> None:
        self._server.fault = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, cloud: StandInAdapter, elsewhere: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cloud, self.elsewhere, self.calls, self.renewed = cloud, elsewhere, 0, 0
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.fault: FaultKind | None = None
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away, or trusts another authority, is no news.

        Before Python 3.12.1 two tracebacks at a time, here and in pytest, raise a `SystemError`.
        """
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version, wbufsize = "HTTP/1.1", -1
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.renewed = self.server.renewed

    def _answer(self) -> None:
        if self.renewed != self.server.renewed:
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.calls += 1
        cloud, fault = self.server.cloud, self.server.fault
        token = self.headers.get(cloud.token_header, "").rpartition(" ")[2]
        match fault:
            case None:
                self._send(*cloud.reply(self.command, self.path, json.loads(body or "{}"), token))
            case FaultKind.SILENT:
                self.close_connection = True
            case FaultKind.GARBAGE:
                self._send(200, {"message": "hello"})
            case FaultKind.ELSEWHERE:
                self._send(302, {}, Location=self.server.elsewhere + self.path)
            case FaultKind.ENDLESS:
                self._drip()
            case _:
                text = f"{token} {HUGE}" if fault is FaultKind.HUGE else "it is not itself"
                self._send(STATUS[fault], cloud.error(text), **{"Retry-After": cloud.retry_after})

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - their names

    def log_message(self, *_: object) -> None:
        """Be quiet."""

    def _send(self, status: int, content: object, **headers: object) -> None:
        payload = json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": len(payload), **headers}.items():
            if value is not None:
                self.send_header(name, f"{value}")
        self.end_headers()
        self.wfile.write(payload)

    def _drip(self) -> None:
        """An answer that comes a byte at a time until the client closes the connection."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Length", str(1 << 20))
        self.end_headers()
        with suppress(OSError):
            while self.server.fault is FaultKind.ENDLESS:
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(DRIP)


def _certificate() -> tuple[bytes, bytes]:
    """A new certificate of this host, its own authority, and its key, in PEM."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, SHA256())
    )
    form = Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    return certificate.public_bytes(Encoding.PEM), key.private_bytes(*form)
