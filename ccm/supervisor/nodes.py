"""What the supervisor sees of the Nodes by itself, to judge what workers say of them."""

import orjson

from ccm.decide.deletion import ObservedNode
from ccm.model.node import UNINITIALIZED_TAINT, Node
from ccm.model.projection import Projection
from ccm.supervisor.delivery import ProjectedStore

PROJECTION = Projection(
    "Node",
    (
        ("metadata", "uid"),
        ("metadata", "creationTimestamp"),
        ("spec", "providerID"),
        ("spec", "taints", ("key", UNINITIALIZED_TAINT)),
        ("status", "conditions", ("type", "Ready"), "status"),
    ),
)


class NodeInformer:
    """The supervisor's own view of all Nodes. `scheme` is told by the first worker."""

    def __init__(self, view: ProjectedStore) -> None:
        self.view = view
        self.scheme = ""

    def look(self, name: str) -> ObservedNode | None:
        """The Node of this name; None when there is none, or nothing was listed yet."""
        entry = self.view.values.get(name)
        if entry is None:
            return None
        node = Node(orjson.loads(entry[1]))
        # Without a word from a provider every Node counts as somebody else's.
        is_foreign = not self.scheme or node.is_foreign(self.scheme)
        return ObservedNode(node.uid, node.is_ready, is_foreign, bool(node.provider_id))

    def total(self) -> int:
        return len(self.view.values)
