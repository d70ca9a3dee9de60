"""Which of several Nodes that name one machine is on it: the one that fits what the cloud says."""

from collections.abc import Sequence

from ccm.model.cloud import Instance, swapped_uuid
from ccm.model.objects import Node, text


def rightful_node(nodes: Sequence[Node], machine: Instance) -> str:
    """The name of the one Node that fits best; empty when none does, or several do alike.

    What the cloud calls the machine goes first: a kubelet has one name, and may write any provider
    ID, UUID or address.
    """
    for fits in (_has_its_whole_name, _has_its_name, _has_its_uuid, _has_its_address):
        found = [node.name for node in nodes if fits(node, machine)]
        if len(found) == 1:
            return found[0]
    return ""


def _has_its_whole_name(node: Node, machine: Instance) -> bool:
    """With its domain: the Node of a machine in another domain may have the rest of it."""
    return "." in node.name and node.name in {name.lower() for name in machine.names}


def _has_its_name(node: Node, machine: Instance) -> bool:
    """With its domain or without."""
    names = {name.lower() for name in machine.names if name}
    return node.name in names | {name.partition(".")[0] for name in names}


def _has_its_uuid(node: Node, machine: Instance) -> bool:
    """In either order of bytes: firmware and guests disagree about the first three groups."""
    reported, uuid = node.system_uuid.lower(), machine.system_uuid.lower()
    return bool(uuid) and reported in (uuid, swapped_uuid(uuid))


def _has_its_address(node: Node, machine: Instance) -> bool:
    own = {address.address for address in machine.addresses}
    return any(text(item.get("address")) in own for item in node.addresses)
