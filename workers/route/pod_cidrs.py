"""The pod CIDRs of all Nodes: which are taken as networks, and whose one is that several have."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ccm.model.cloud import Network, read_network
from ccm.model.objects import Node


def is_managed(network: Network, cluster_cidrs: Iterable[Network]) -> bool:
    """Whether a route to `network` is one that we may delete: upstream's rule of responsibility.

    Its first or its last address lies inside a cluster CIDR. So a network that reaches beyond a
    cluster CIDR counts when both begin or end together, and not otherwise. A route that does not
    carry the mark of this cluster is never listed, so the rule never comes to it.
    """
    return any(
        network.version == cluster.version
        and (network.network_address in cluster or network.broadcast_address in cluster)
        for cluster in cluster_cidrs
    )


@dataclass(frozen=True, slots=True)
class PodCidrLimits:
    """What a pod CIDR may be, because a kubelet may write any into its own Node.

    It lies inside one of `cluster_cidrs`, and no prefix is shorter than the one in `masks` for its
    IP version, where there is one.
    """

    cluster_cidrs: tuple[Network, ...] = ()
    masks: Mapping[int, int] = field(default_factory=dict)

    def violation(self, network: Network) -> str:
        """Why there is no route to this network; empty when there may be one."""
        if not any(_is_inside(network, cluster) for cluster in self.cluster_cidrs):
            return f"it is not inside --cluster-cidr, {', '.join(map(str, self.cluster_cidrs))}"
        mask = self.masks.get(network.version, 0)
        if network.prefixlen < mask:
            return f"it is wider than --node-cidr-mask-size-ipv{network.version}, /{mask}"
        return ""


def _is_inside(network: Network, cluster: Network) -> bool:
    """As `subnet_of`, which takes no two IP versions."""
    same_version = network.version == cluster.version
    return same_version and network.prefixlen >= cluster.prefixlen and network.overlaps(cluster)


@dataclass(frozen=True, slots=True)
class PodCidrs:
    """The pod CIDRs of a Node: its networks, and for each text or network that is refused, why."""

    node: Node
    networks: tuple[Network, ...]
    unreadable: tuple[str, ...] = ()
    refused: Mapping[Network, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not (self.networks or self.unreadable or self.refused)


def pod_cidrs_of(node: Node, limits: PodCidrLimits) -> PodCidrs:
    """What `spec.podCIDRs` says, each network once."""
    read = {cidr: read_network(cidr) for cidr in node.pod_cidrs}
    why = {network: limits.violation(network) for network in read.values() if network is not None}
    return PodCidrs(
        node,
        tuple(network for network in why if not why[network]),
        tuple(cidr for cidr in read if read[cidr] is None),
        {network: violation for network, violation in why.items() if violation},
    )


class PodCidrIndex:
    """The pod CIDRs of every known Node by its name, with an index of the networks."""

    def __init__(self, limits: PodCidrLimits, nodes: Iterable[Node] = ()) -> None:
        self.limits = limits
        self._entries: dict[str, PodCidrs] = {}
        # By IP version and prefix length; networks of one length are equal or have nothing in
        # common, so that looking for overlaps stays cheap however many Nodes there are.
        self._names: dict[tuple[int, int], dict[Network, set[str]]] = {}
        self._counts: Counter[tuple[int, int]] = Counter()  # of Nodes, by the same
        for node in nodes:
            self.put(node)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[PodCidrs]:
        return iter(self._entries.values())

    def get(self, name: str) -> PodCidrs | None:
        return self._entries.get(name)

    def put(self, node: Node) -> PodCidrs:
        """Take in a Node as it is now; most changes are of something else than its networks."""
        before = self._entries.get(node.name)
        if before and before.node.pod_cidrs == node.pod_cidrs:
            cidrs = self._entries[node.name] = replace(before, node=node)
            return cidrs
        self.remove(node.name)
        cidrs = self._entries[node.name] = pod_cidrs_of(node, self.limits)
        for network in cidrs.networks:
            group = self._names.setdefault((network.version, network.prefixlen), {})
            group.setdefault(network, set()).add(node.name)
            self._counts[network.version, network.prefixlen] += 1
        return cidrs

    def remove(self, name: str) -> None:
        cidrs = self._entries.pop(name, None)
        for network in cidrs.networks if cidrs else ():
            length = network.version, network.prefixlen
            names = self._names[length][network]
            names.discard(name)
            self._counts[length] -= 1
            if not names:
                del self._names[length][network]
            if not self._names[length]:
                del self._names[length]

    def nodes_with(self, network: Network) -> list[PodCidrs]:
        """The Nodes that have exactly this network."""
        names = self._names.get((network.version, network.prefixlen), {}).get(network, set())
        return [self._entries[name] for name in sorted(names)]

    def usual_lengths(self) -> dict[int, int]:
        """The prefix length that most Nodes have, by IP version; of two the shorter one.

        Not where there is a mask, which says by itself what is too wide.
        """
        by_count = sorted(self._counts.items(), key=lambda item: (item[1], -item[0][1]))
        masks = self.limits.masks
        return {
            version: length
            for (version, length), count in by_count
            if count and not masks.get(version)
        }

    def taken_by(self, cidrs: PodCidrs, network: Network) -> list[str]:
        """The other Nodes that have `network` or a part of it by right; empty when this one does.

        A pod CIDR wider than most Nodes' loses, else that of the newer Node: a kubelet that writes
        any other network into its Node takes nothing away and delays no other.
        """
        others = self.overlapping(cidrs, network)
        usual = self.usual_lengths().get(network.version, 0) if others else 0

        def order(node: Node, claimed: Network) -> tuple[bool, tuple[str, str]]:
            return claimed.prefixlen < usual, node.age_order

        own = order(cidrs.node, network)
        return [
            name
            for name in others
            if any(
                each.overlaps(network) and order(self._entries[name].node, each) < own
                for each in self._entries[name].networks
            )
        ]

    def overlapping(self, cidrs: PodCidrs, network: Network) -> list[str]:
        """The other Nodes that have `network` or a part of it."""
        return sorted(self._names_on(network) - {cidrs.node.name})

    def nodes_on(self, network: Network) -> list[Node]:
        """All Nodes that have `network` or a part of it, or of which it is a part.

        Not those of which it is a part and that are wider than most: a kubelet may have all.
        """
        shortest = min(self.usual_lengths().get(network.version, 0), network.prefixlen)
        found = (self._entries[name] for name in self._names_on(network))
        return [
            cidrs.node
            for cidrs in found
            if any(each.overlaps(network) and each.prefixlen >= shortest for each in cidrs.networks)
        ]

    def _names_on(self, network: Network) -> set[str]:
        names: set[str] = set()
        for (version, length), group in self._names.items():
            if version != network.version:
                continue
            if length == network.prefixlen:
                names |= group.get(network, set())
            elif length < network.prefixlen:
                names |= group.get(network.supernet(new_prefix=length), set())
            else:
                within = (smaller for smaller in group if smaller.overlaps(network))
                names = names.union(*(group[smaller] for smaller in within))
        return names
