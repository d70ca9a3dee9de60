"""Sending on an asyncio ZeroMQ socket without waiting: taken at once, or not at all."""

import asyncio
from typing import Any, cast

import zmq
import zmq.asyncio

_NOT_TAKEN = (zmq.EAGAIN, zmq.EHOSTUNREACH)


def send_now(socket: zmq.asyncio.Socket, parts: list[bytes]) -> bool:
    """Whether the socket took the message; False when the peer is gone or its queue is full."""
    # With NOBLOCK the future is done when it comes back, and the socket's wake-ups stay in order.
    sent = cast("asyncio.Future[Any]", socket.send_multipart(parts, flags=zmq.NOBLOCK))
    error = sent.exception()
    if error is None:
        return True
    if isinstance(error, zmq.ZMQError) and error.errno in _NOT_TAKEN:
        return False
    raise error
