"""Which of several Nodes that name one machine is on it: the one that fits what the cloud says."""

from collections.abc import Sequence

from ccm.model.cloud import Instance, NodeAddress, read_address, swapped_uuid
from ccm.model.objects import Node, text

ClaimFacts = tuple[tuple[str, ...], str, tuple[NodeAddress, ...]]


def facts_of(machine: Instance) -> ClaimFacts:
    """All that Nodes are compared with: two machines may be equal that are called otherwise."""
    return machine.names, machine.system_uuid, machine.addresses


def rightful_node(nodes: Sequence[Node], machine: Instance) -> str:
    """The name of the one Node that fits best; empty when none does, or several do alike.

    What the cloud calls the machine goes first: a kubelet has one name, and may write any provider
    ID, UUID or address.
    """
    by_name = _has_its_whole_name, _has_its_name
    for fits in (*by_name, _has_its_uuid, _begins_with_its_name, _has_its_address):
        found = [node.name for node in nodes if fits(node, machine)]
        if len(found) == 1:
            return found[0]
    return ""


def _has_its_whole_name(node: Node, machine: Instance) -> bool:
    """With its domain: the Node of a machine in another domain may have the rest of it.

    An address is no domain: who is called as the machine is goes before who is called like that.
    """
    has_domain = "." in node.name and not read_address(node.name)
    return has_domain and node.name in {name.lower() for name in machine.names}


def _has_its_name(node: Node, machine: Instance) -> bool:
    """With its domain or without."""
    names = {name.lower() for name in machine.names if name}
    hosts = {name.partition(".")[0] for name in names if not read_address(name)}
    return node.name in names | hosts


def _has_its_uuid(node: Node, machine: Instance) -> bool:
    """In either order of bytes: firmware and guests disagree about the first three groups."""
    reported, uuid = node.system_uuid.lower(), machine.system_uuid.lower()
    return bool(uuid) and reported in (uuid, swapped_uuid(uuid))


def _begins_with_its_name(node: Node, machine: Instance) -> bool:
    """With a domain that the cloud does not know: some find a Node by what is before its dot."""
    return node.name.partition(".")[0] in {name.lower() for name in machine.names}


def _has_its_address(node: Node, machine: Instance) -> bool:
    own = {address.address for address in machine.addresses}
    return any(text(item.get("address")) in own for item in node.addresses)
