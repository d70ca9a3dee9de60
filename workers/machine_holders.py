"""Which Node has a machine: the oldest, and every other one that names it gets nothing."""

from collections.abc import Callable

from ccm.model.objects import Node

DUPLICATE = "DuplicateProviderID"
"""The reason of the Event on a Node that gets nothing."""


class MachineHolders:
    """The Nodes of each machine, for a kubelet may write any provider ID.

    All Nodes have to be in here, not only those that this worker owns.
    """

    def __init__(self, machine_of: Callable[[str], str]) -> None:
        self._machine_of = machine_of
        self._nodes: dict[str, dict[str, tuple[str, str]]] = {}  # by machine: name → age
        self._machines: dict[str, str] = {}  # by the name of the Node

    def update(self, name: str, node: Node | None) -> set[str]:
        """Take in a Node, or that there is none; the other Nodes of its machines, old and new."""
        before = self._machines.pop(name, "")
        machine = self._machine_of(node.provider_id) if node and node.provider_id else ""
        if before:
            self._nodes[before].pop(name)
        if node and machine:
            self._machines[name] = machine
            self._nodes.setdefault(machine, {})[name] = node.age_order
        others = {*self._nodes.get(before, ()), *self._nodes.get(machine, ())} - {name}
        if before and not self._nodes[before]:
            del self._nodes[before]
        return others

    def holder(self, name: str) -> str:
        """The older Node that has this one's machine; empty when this Node has it."""
        nodes = self._nodes.get(self._machines.get(name, ""), {})
        oldest = min(nodes, key=nodes.__getitem__, default=name)
        return "" if oldest == name else oldest

    def older_on(self, provider_id: str, node: Node) -> str:
        """The older Node that has the machine of a provider ID which `node` is about to get."""
        nodes = self._nodes.get(self._machine_of(provider_id), {})
        older = {name: age for name, age in nodes.items() if age < node.age_order}
        older.pop(node.name, None)
        return min(older, key=older.__getitem__, default="")


def duplicate_message(holder: str) -> str:
    """What people are told of a Node that gets nothing, because an older one has its machine."""
    return f"Node {holder} is older and has the same machine: delete the one that is not on it"
