"""Networks as networks and not as text: reading them, and which of them are ours to delete."""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_network

Network = IPv4Network | IPv6Network


def read_network(cidr: str) -> Network | None:
    """The network that `cidr` names, or None; host bits are dropped, as Go's ParseCIDR does."""
    if "/" not in cidr:
        return None
    try:
        return ip_network(cidr, strict=False)
    except ValueError:
        return None


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
