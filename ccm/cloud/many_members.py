"""Load balancers whose ports have members of their own: ports times nodes, which may be many."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from ccm.errors import Refused

T = TypeVar("T")

MOST_MEMBERS = 200_000
"""More than any load balancer takes; each is some hundred bytes here, several times."""
MANY_MEMBERS = 10_000  # to go through more takes so long that all else would wait


def check_members(ports: int, nodes: int) -> None:
    """Raise `Refused` for more than `MOST_MEMBERS`."""
    if ports * nodes > MOST_MEMBERS:
        raise Refused(
            f"{ports} ports on {nodes} nodes are more than {MOST_MEMBERS} members: give each part "
            "of the ports a Service of its own"
        )


async def compute(members: int, function: Callable[[], T]) -> T:
    """What a pure function makes of so many members; beside all else where they are many."""
    return function() if members < MANY_MEMBERS else await asyncio.to_thread(function)
