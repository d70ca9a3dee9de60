"""The pod CIDRs of all Nodes: which are taken as networks, and whose one is that several have."""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, islice

from ccm.model.cloud import Network, read_network
from ccm.model.objects import Node

MOST_TAKERS = 10  # that are looked for: a kubelet may have the network of thousands


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
        self._starts: dict[tuple[int, int], list[int]] = {}  # the same in order, as numbers
        self._counts: Counter[tuple[int, int]] = Counter()  # of Nodes, by the same
        self._usual: dict[int, int] | None = None
        self._places: dict[str, int] = {}  # by name, which was heard of before which
        self._numbers = count(1)
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
        self._places[node.name], self._usual = next(self._numbers), None
        for network in cidrs.networks:
            length = network.version, network.prefixlen
            group = self._names.setdefault(length, {})
            if network not in group:
                insort(self._starts.setdefault(length, []), int(network.network_address))
            group.setdefault(network, set()).add(node.name)
            self._counts[length] += 1
        return cidrs

    def remove(self, name: str) -> None:
        cidrs = self._entries.pop(name, None)
        self._places.pop(name, None)
        self._usual = None
        for network in cidrs.networks if cidrs else ():
            length = network.version, network.prefixlen
            names = self._names[length][network]
            names.discard(name)
            self._counts[length] -= 1
            if not names:
                del self._names[length][network]
                starts = self._starts[length]
                del starts[bisect_left(starts, int(network.network_address))]
            if not self._names[length]:
                del self._names[length], self._starts[length]

    def nodes_with(self, network: Network) -> list[PodCidrs]:
        """The Nodes that have exactly this network."""
        names = self._names.get((network.version, network.prefixlen), {}).get(network, set())
        return [self._entries[name] for name in sorted(names)]

    def usual_lengths(self) -> Mapping[int, int]:
        """The prefix length that most Nodes have, by IP version; of two the shorter one.

        Not where there is a mask, which says by itself what is too wide.
        """
        if self._usual is None:
            by_count = sorted(self._counts.items(), key=lambda item: (item[1], -item[0][1]))
            self._usual = {
                version: length
                for (version, length), nodes in by_count
                if nodes and not self.limits.masks.get(version)
            }
        return self._usual

    def taken_by(
        self,
        cidrs: PodCidrs,
        network: Network,
        has_route: Callable[[str, Network], bool] = lambda *_: False,
    ) -> list[str]:
        """Others, not all, that have `network` or a part of it by right; none when this one does.

        A pod CIDR wider than most Nodes' loses, else that of the newer Node: a kubelet that writes
        any other network into its Node takes nothing away and delays no other. Of one second who
        has the route was first, or who was heard of before.
        """
        usual = self.usual_lengths().get(network.version, 0)
        shortest = usual if network.prefixlen >= usual else 0

        def order(node: Node, claimed: Network) -> tuple[bool, str, bool, int]:
            second, lacks_route = node.age_order[0], not has_route(node.name, claimed)
            place = self._places.get(node.name, 0)
            return claimed.prefixlen < usual, second, lacks_route, place

        own = order(cidrs.node, network)
        found = (
            name
            for name in self._names_on(network, shortest)
            if name != cidrs.node.name
            and any(
                each.overlaps(network) and order(self._entries[name].node, each) < own
                for each in self._entries[name].networks
            )
        )
        return sorted({*islice(found, MOST_TAKERS)})

    def overlapping(self, cidrs: PodCidrs, network: Network) -> list[str]:
        """The other Nodes that have `network` or a part of it."""
        return sorted({*self._names_on(network)} - {cidrs.node.name})

    def nodes_on(self, network: Network) -> list[Node]:
        """All Nodes that have `network` or a part of it, or of which it is a part.

        Not those of which it is a part and that are wider than most: a kubelet may have all.
        """
        shortest = min(self.usual_lengths().get(network.version, 0), network.prefixlen)
        found = (self._entries[name] for name in {*self._names_on(network, shortest)})
        return [
            cidrs.node
            for cidrs in found
            if any(each.overlaps(network) and each.prefixlen >= shortest for each in cidrs.networks)
        ]

    def _names_on(self, network: Network, shortest: int = 0) -> Iterator[str]:
        """Of the Nodes that have `network` or a part of it, or of which it is a part; some twice.

        One that is wider than most may hold thousands: they are found as far as they are asked for.
        """
        for (version, length), group in self._names.items():
            if version != network.version or length < shortest:
                continue
            if length == network.prefixlen:
                yield from group.get(network, ())
                continue
            if length < network.prefixlen:
                yield from group.get(network.supernet(new_prefix=length), ())
                continue
            starts = self._starts[version, length]
            first = bisect_left(starts, int(network.network_address))
            for at in range(first, bisect_right(starts, int(network.broadcast_address))):
                yield from group[type(network)((starts[at], length))]
