"""What a client of the API server needs: its address, and who we are to it."""

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
