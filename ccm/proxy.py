"""HTTP proxies: which one leads to a URL, by the rules of Go's programs, and the tunnel through it.

The rules are those of golang.org/x/net/http/httpproxy, as kubectl and upstream's controllers have
them: HTTPS_PROXY and HTTP_PROXY by the scheme of the URL, NO_PROXY, and never for this machine.
"""

import asyncio
import os
import socket
import ssl
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import cast
from urllib.parse import unquote, urlsplit

from ccm.errors import ConfigurationFault
from ccm.redaction import register_secrets

PORTS = {"http": 80, "https": 443}
VARIABLES = {"http": ("HTTP_PROXY", "http_proxy"), "https": ("HTTPS_PROXY", "https_proxy")}
ANSWER_LIMIT = 16 << 10  # bytes of a proxy's answer

Address = IPv4Address | IPv6Address


class ProxyError(ConnectionError):
    """The proxy does not answer, or makes no connection; the text has its address."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy; `authorization` is the value of the header that says who we are to it."""

    scheme: str
    host: str
    port: int
    authorization: str = field(default="", repr=False)

    @property
    def address(self) -> str:
        """Its URL as errors show it, without credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Those that a request to the proxy itself has besides."""
        return [("Proxy-Authorization", self.authorization)] if self.authorization else []


def read_proxy(url: str) -> Proxy:
    """The proxy of this URL; raises `ValueError`, whose text shows no credentials."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError("is not the URL of a proxy") from None
    if parts.scheme not in PORTS:
        raise ValueError(f"has the scheme {parts.scheme!r}; proxies by http and https are used")
    if not host or not url.isprintable():
        raise ValueError("is not the URL of a proxy")
    authorization = ""
    if parts.username is not None:
        known = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {b64encode(known.encode()).decode()}"
        register_secrets(authorization.partition(" ")[2], unquote(parts.password or ""))
    return Proxy(parts.scheme, host, port or PORTS[parts.scheme], authorization)


def proxy_for(url: str, environ: Mapping[str, str] = os.environ) -> Proxy | None:
    """The proxy by which the environment has this URL reached; None for none.

    Raises `ValueError` for a variable that names none, with its name.
    """
    target = urlsplit(url)
    name = next((item for item in VARIABLES.get(target.scheme, ()) if environ.get(item)), "")
    port = target.port or PORTS.get(target.scheme, 0)
    if not name or is_excluded(target.hostname or "", port, environ):
        return None
    try:
        return read_proxy(environ[name])
    except ValueError as error:
        raise ValueError(f"{name} {error}") from error


def check_environment(environ: Mapping[str, str] = os.environ) -> None:
    """Raise `ConfigurationFault` for a variable that names no proxy that can be used."""
    for name in (name for names in VARIABLES.values() for name in names if environ.get(name)):
        try:
            read_proxy(environ[name])
        except ValueError as error:
            remedy = "write it like http://host:3128, or unset it"
            raise ConfigurationFault(name, str(error), remedy) from error


def is_excluded(host: str, port: int, environ: Mapping[str, str]) -> bool:
    """Whether a host is reached without a proxy: this machine, and what NO_PROXY names.

    So are link-local addresses: no proxy has the metadata of this machine.
    """
    address = _address(host)
    if host == "localhost" or (address and (address.is_loopback or address.is_link_local)):
        return True
    named = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    entries = [entry.strip().lower() for entry in named.split(",")]
    return "*" in entries or any(_covers(entry, host.lower(), address, port) for entry in entries)


def _covers(entry: str, host: str, address: Address | None, port: int) -> bool:
    """Whether an entry of NO_PROXY names the host: a network, an address, or a domain."""
    if "/" in entry:
        with suppress(ValueError):
            return address is not None and address in ip_network(entry, strict=False)
    name, only = _split_port(entry)
    if only and only != str(port):
        return False
    if (named := _address(name)) or address:
        return named == address
    domain = name[1:] if name.startswith("*.") else name
    return bool(domain) and (host == domain or host.endswith(f".{domain.removeprefix('.')}"))


def _split_port(entry: str) -> tuple[str, str]:
    """The host and the port of an entry; the port is empty where it names none."""
    host, bracket, port = entry.removeprefix("[").partition("]:")
    if bracket and entry.startswith("["):
        return host, port
    host, colon, port = entry.rpartition(":")
    return (host, port) if colon and ":" not in host else (entry, "")


def _address(host: str) -> Address | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def client_context(ca_file: str = "", ca_data: str = "") -> ssl.SSLContext:
    """TLS of a client, which takes what Go's library takes.

    With DHE, which that never had, the server chooses how long a key is: 10,000 bits take a second.
    """
    context = ssl.create_default_context(cafile=ca_file or None, cadata=ca_data or None)
    names = (cipher["name"] for cipher in context.get_ciphers())
    context.set_ciphers(":".join(name for name in names if not name.startswith("DHE-")))
    # Python is strict since 3.13, and would refuse CAs without key usage, which `openssl req -x509`
    # makes, and certificates without their authority's key identifier.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


async def open_tunnel(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Have the proxy, which the socket leads to, connect it to `host`; a failure closes it."""
    loop = asyncio.get_running_loop()
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    headers = [("Host", where), *proxy.headers]
    lines = [f"CONNECT {where} HTTP/1.1", *map(": ".join, headers), "", ""]
    try:
        await loop.sock_sendall(sock, "\r\n".join(lines).encode("latin-1"))
        answer = b""
        while b"\r\n\r\n" not in answer:
            piece = await loop.sock_recv(sock, ANSWER_LIMIT)
            if not piece or len(answer) > ANSWER_LIMIT:
                raise ProxyError(f"proxy {proxy.address} broke off")
            answer += piece
        version, _, status = answer.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        if not version.startswith("HTTP/1.") or status[:3] != "200":
            raise ProxyError(f"proxy {proxy.address} does not connect to {where}: {status}")
    except BaseException:
        sock.close()
        raise


async def encrypt(connected: socket.socket, proxy: Proxy) -> socket.socket:
    """A socket for what goes to and comes from a proxy that is spoken to by TLS.

    What is sent through it is TLS as well, which has a socket below it: so one end of a pair
    of sockets stands for the connection, and what comes at either side is passed on.
    """
    context = client_context()
    loop = asyncio.get_running_loop()
    ours, other = socket.socketpair()
    ours.setblocking(False)
    near, far = _Side(), _Side()
    near.opposite, far.opposite = far, near
    await loop.create_connection(lambda: near, sock=other)
    try:
        await loop.create_connection(
            lambda: far, sock=connected, ssl=context, server_hostname=proxy.host
        )
    except BaseException as error:
        near.transport.abort()
        ours.close()
        if isinstance(error, OSError):
            raise ProxyError(f"proxy {proxy.address}: {error}") from error
        raise
    return ours


class _Side(asyncio.Protocol):
    """One of two connections: what comes here leaves by the opposite one, and both end together.

    The loop keeps protocols as long as their connections; of streams' tasks, it keeps none that
    only waits.
    """

    transport: asyncio.Transport
    opposite: "_Side"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.opposite.transport.write(data)

    def pause_writing(self) -> None:
        self.opposite.transport.pause_reading()

    def resume_writing(self) -> None:
        self.opposite.transport.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        transport = getattr(self.opposite, "transport", None)
        if transport and transport.get_extra_info("sslcontext"):
            transport.abort()  # TLS would wait for the goodbye
        elif transport:
            transport.close()
