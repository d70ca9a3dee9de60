"""Every known Node with the pod networks it claims, and who else claims a part of one."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ccm.model.node import Node
from workers.route.networks import Network, read_network


@dataclass(frozen=True, slots=True)
class Claim:
    """What a Node says its Pods use; `unreadable` are pod CIDRs that are not networks."""

    node: Node
    networks: tuple[Network, ...]
    unreadable: tuple[str, ...]


def claim_of(node: Node) -> Claim:
    """The claim in `spec.podCIDRs`, each network once."""
    read = {cidr: read_network(cidr) for cidr in node.pod_cidrs}
    networks = dict.fromkeys(network for network in read.values() if network is not None)
    return Claim(node, tuple(networks), tuple(cidr for cidr in read if read[cidr] is None))


class Roster:
    """Claims by the name of the Node, with an index of the networks in them."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._claims: dict[str, Claim] = {}
        # By IP version and prefix length; networks of one length are equal or have nothing in
        # common, so that looking for overlaps stays cheap however many Nodes there are.
        self._claimants: dict[tuple[int, int], dict[Network, set[str]]] = {}
        for node in nodes:
            self.put(node)

    def __len__(self) -> int:
        return len(self._claims)

    def __iter__(self) -> Iterator[Claim]:
        return iter(self._claims.values())

    def get(self, name: str) -> Claim | None:
        return self._claims.get(name)

    def put(self, node: Node) -> Claim:
        """Take in a Node as it is now."""
        self.remove(node.name)
        claim = self._claims[node.name] = claim_of(node)
        for network in claim.networks:
            group = self._claimants.setdefault((network.version, network.prefixlen), {})
            group.setdefault(network, set()).add(node.name)
        return claim

    def remove(self, name: str) -> None:
        claim = self._claims.pop(name, None)
        for network in claim.networks if claim else ():
            length = network.version, network.prefixlen
            names = self._claimants[length][network]
            names.discard(name)
            if not names:
                del self._claimants[length][network]
            if not self._claimants[length]:
                del self._claimants[length]

    def claimants(self, network: Network) -> list[Claim]:
        """Who claims exactly this network."""
        names = self._claimants.get((network.version, network.prefixlen), {}).get(network, set())
        return [self._claims[name] for name in sorted(names)]

    def rivals(self, claim: Claim, network: Network) -> list[str]:
        """The other Nodes that claim `network` or a part of it."""
        names: set[str] = set()
        for (version, length), group in self._claimants.items():
            if version != network.version:
                continue
            if length <= network.prefixlen:
                names |= group.get(network.supernet(new_prefix=length), set())
            else:
                within = (smaller for smaller in group if smaller.overlaps(network))
                names = names.union(*(group[smaller] for smaller in within))
        return sorted(names - {claim.node.name})
