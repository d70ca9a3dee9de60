"""What the rounds of questions about many nodes share: which nodes, and in which batches."""

from collections.abc import Callable, Iterator, Sequence

from ccm.model.node import Node
from workers.store import Store


def nodes_where(store: Store, is_wanted: Callable[[Node], bool]) -> list[Node]:
    """The nodes in `store` for which the condition holds, by name."""
    found = (store.get(kind, key) for kind, key in sorted(store.names()))
    return [node for raw in found if raw is not None and is_wanted(node := Node(raw))]


def batches(nodes: Sequence[Node], size: int) -> Iterator[Sequence[Node]]:
    """`nodes` in parts of `size` at the most; none when there are no nodes."""
    for first in range(0, len(nodes), size):
        yield nodes[first : first + size]
