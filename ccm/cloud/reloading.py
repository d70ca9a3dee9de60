"""A client of a cloud's own API, whose certificates count as their files have them now."""

import logging
import os
import ssl
from dataclasses import replace
from pathlib import Path

from cryptography import x509

from ccm.http import IDLE_TIMEOUT, HttpClient
from ccm.tls import Server

log = logging.getLogger(__name__)


class ReloadingClient:
    """Connections to one server. The one in use keeps its certificates; a new one has the newest.

    Files that cannot be read later on are logged, and those read before go on.
    """

    def __init__(self, server: Server, idle_timeout: float = IDLE_TIMEOUT) -> None:
        self.url = server.url
        self._server, self._idle_timeout = server, idle_timeout
        self._files = [file for file in (server.ca_file, server.cert_file, server.key_file) if file]
        self._clients: list[HttpClient] = []
        self._stamps: list[tuple[int, int]] = []

    def current(self) -> HttpClient:
        """The client to send with; raises `OSError` or `ValueError` for files that are none."""
        try:
            stamps = [_stamp(file) for file in self._files]
            if not self._clients or stamps != self._stamps:
                server = with_trust(self._server)
                self._clients.append(HttpClient(server, idle_timeout=self._idle_timeout))
                self._stamps = stamps
        except (OSError, ValueError) as wrong:
            if not self._clients:
                raise
            log.warning("certificates are not reloaded", extra={"why": str(wrong)})
        return self._clients[-1]

    async def close(self) -> None:
        """Close all connections."""
        while self._clients:
            await self._clients.pop().close()


def _stamp(file: str) -> tuple[int, int]:
    about = os.stat(file)
    return about.st_mtime_ns, about.st_ino


def what_broke(error: Exception, ca_keys: str) -> str:
    """What to say of a request without an answer; `ca_keys` of the configuration say who is
    believed.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        why = f"the certificate is not trusted: {error.verify_message.rstrip('.')}"
        return f"{why}; give its authority's, or the server's own, as {ca_keys}"
    return f"{type(error).__name__}: {error}"


def with_trust(server: Server) -> Server:
    """A server's own certificate is believed whatever the host is called.

    One of an authority is not: the server has to have the name of the host then.
    """
    if not server.ca_file or not server.url.startswith("https:"):
        return replace(server, ca_file="")
    found = x509.load_pem_x509_certificate(Path(server.ca_file).read_bytes()).extensions
    constraints = [one.value for one in found if isinstance(one.value, x509.BasicConstraints)]
    is_authority = any(one.ca for one in constraints)
    return replace(server, is_pinned=not is_authority)
