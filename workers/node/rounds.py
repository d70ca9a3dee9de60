"""What the rounds of questions about many nodes share: which nodes, and in which batches."""

import asyncio
from collections.abc import Callable, Iterator, Sequence

from ccm.model.node import Node
from workers.store import Store

AT_ONCE = 200  # nodes looked at before others have their turn: less than a millisecond


async def nodes_where(store: Store, is_wanted: Callable[[Node], bool]) -> list[Node]:
    """The nodes in `store` for which the condition holds, by name; holds up nobody meanwhile."""
    found: list[Node] = []
    for number, (kind, key) in enumerate(store.names()):
        if number % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)
        raw = store.get(kind, key)
        if raw is not None and is_wanted(node := Node(raw)):
            found.append(node)
    return sorted(found, key=lambda node: node.name)


def batches(nodes: Sequence[Node], size: int) -> Iterator[Sequence[Node]]:
    """`nodes` in parts of `size` at the most; none when there are no nodes."""
    for first in range(0, len(nodes), size):
        yield nodes[first : first + size]
