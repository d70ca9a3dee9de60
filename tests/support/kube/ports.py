"""Loopback ports which nobody else can take, before, between and after their server runs."""

import socket
import weakref


class ReservedPort:
    """A port held by a socket that never listens.

    Only a server of the same user that sets SO_REUSEPORT can bind it too, and connections go to
    the socket that listens. So there is no race for the port, and a restart finds it free.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind(("127.0.0.1", 0))
        weakref.finalize(self, self._socket.close)  # a test that fails does not release it
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        self._socket.close()
