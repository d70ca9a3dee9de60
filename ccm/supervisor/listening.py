"""The port that HTTPS is served on. It is taken long before what serves on it has loaded."""

import socket
from ipaddress import ip_address

from ccm.errors import CannotListen
from ccm.settings import Settings

BACKLOG = 4096  # connections that wait to be accepted, as in a flood of them


def listen(settings: Settings) -> socket.socket:
    """The listening socket; raises `CannotListen`, whose text names the flag."""
    address = (settings.bind_address, settings.secure_port)
    family = socket.AF_INET6 if ip_address(address[0]).version == 6 else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if settings.permit_port_sharing:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise CannotListen(
            f"--secure-port: cannot listen on {address[0]} port {address[1]}: {error.strerror};"
            " stop what uses it, or choose another --secure-port or --bind-address"
        ) from error
    listening.setblocking(False)
    return listening
