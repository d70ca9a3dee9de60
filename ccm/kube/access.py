"""What a client of the API server needs: its address, and who we are to it."""

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ccm.model.server import Server

Bearer = Callable[[], Awaitable[str]]
"""Gives the token to show with the next request; empty when there is none to show."""


async def no_token() -> str:
    """Of whom a client certificate speaks, or nothing."""
    return ""


@dataclass(frozen=True, slots=True)
class Access:
    """The API server, and who we are to it."""

    server: Server
    bearer: Bearer = no_token


def tls(server: Server) -> ssl.SSLContext | None:
    """For connections to the server; None where it is plain HTTP."""
    if not server.url.startswith("https"):
        return None
    context = ssl.create_default_context(cafile=server.ca_file or None)
    if server.cert_file:
        context.load_cert_chain(server.cert_file, server.key_file or None)
    if not server.is_verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if not server.is_strict:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
