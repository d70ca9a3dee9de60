"""The port that HTTPS is served on. It is taken long before what serves on it has loaded."""

import socket
from ipaddress import IPv6Address, IPv6Network, ip_address

from ccm.errors import CannotListen
from ccm.settings import Settings

BACKLOG = 4096  # connections that wait to be accepted, as in a flood of them
SILENCE = 5  # seconds, or a little more, that the kernel holds back a client that says nothing
LOOPBACK = "127."
"""Begins addresses of which each user of this host has 16 million: they count as one."""


def listen(settings: Settings) -> socket.socket:
    """The listening socket; raises `CannotListen`, whose text names the flag.

    An unspecified address, `0.0.0.0` too, stands for all of IPv4 and IPv6, as in Go.
    """
    given = ip_address(settings.bind_address)
    is_any = given.is_unspecified and socket.has_dualstack_ipv6()
    address = ("::" if is_any else settings.bind_address, settings.secure_port)
    family = socket.AF_INET6 if is_any or given.version == 6 else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        if is_any:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if settings.permit_port_sharing:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, SILENCE)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise CannotListen(
            f"--secure-port: cannot listen on {given} port {address[1]}: {error.strerror};"
            " stop what uses it, or choose another --secure-port or --bind-address"
        ) from error
    listening.setblocking(False)
    return listening


def network_of(client: str) -> str:
    """A client's address; of IPv6 the network of 64 bits, of which one client may have all."""
    try:
        address = ip_address(client.partition("%")[0])
    except ValueError:
        return client
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(IPv6Network((address.packed[:8] + bytes(8), 64)))
