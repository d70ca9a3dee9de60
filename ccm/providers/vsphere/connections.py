"""Connections to one vCenter, whose certificate is verified whatever its host is called."""

import asyncio
import hashlib
import ssl

from ccm.cloud.json_api import ReloadingClient
from ccm.http_client import HttpClient
from ccm.providers.vsphere.config import VCenter
from ccm.tls import Connector, Server

IDLE_TIMEOUT = 20.0  # seconds; less than vCenter's reverse proxy keeps connections
FETCH_TIMEOUT = 5.0  # seconds
ALGORITHMS = {40: "sha1", 64: "sha256"}  # by the length of a thumbprint


class Connections:
    """The connections to one vCenter, whose certificate is always verified.

    With a thumbprint, the certificate that has it is fetched first, and is then the only one that
    is trusted: on the connection on which it is fetched nothing is sent.
    """

    def __init__(self, vcenter: VCenter) -> None:
        self._vcenter = vcenter
        self._client: ReloadingClient | None = None
        if not vcenter.thumbprint:
            server = Server(vcenter.url, vcenter.ca_file)
            self._client = ReloadingClient(server, IDLE_TIMEOUT)

    async def current(self) -> HttpClient:
        """The client to send with; raises `OSError` or `ValueError` when there can be none."""
        if self._client is None:
            pem = await fetch_certificate(self._vcenter)
            server = Server(self._vcenter.url, ca_data=pem, is_pinned=True)
            self._client = ReloadingClient(server, IDLE_TIMEOUT)
        return self._client.current()

    def forget_pin(self) -> None:
        """Look at the server's certificate again: the one that was fetched is not its any more."""
        if self._vcenter.thumbprint and self._client:
            self._client.retire()
            self._client = None

    async def close(self) -> None:
        """Close all connections."""
        if self._client:
            await self._client.close()


async def fetch_certificate(vcenter: VCenter) -> str:
    """The server's certificate in PEM, if it has the thumbprint.

    Raises `ValueError` if not, and `OSError` when the server does not answer.
    """
    connector = Connector(Server(vcenter.url, is_verified=False))
    async with asyncio.timeout(FETCH_TIMEOUT):
        der = await connector.peer_certificate()
    algorithm = ALGORITHMS[len(vcenter.thumbprint)]
    found = hashlib.new(algorithm, der, usedforsecurity=False).hexdigest()
    if found != vcenter.thumbprint:
        shown = ":".join(found[at : at + 2] for at in range(0, len(found), 2)).upper()
        raise ValueError(
            f"the certificate has the thumbprint {shown}, which is not the configured one; "
            f"if it was renewed, configure that one"
        )
    return ssl.DER_cert_to_PEM_cert(der)
