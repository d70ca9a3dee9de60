"""Do the Nodes' pod CIDRs fit --cluster-cidr and each other, where routes are configured."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ccm.checks.api_server import list_nodes
from ccm.checks.cloud import require_provider
from ccm.checks.context import Check, CheckContext
from ccm.checks.finding import Finding, abbreviate, failed, ok, pluralize, warning
from ccm.model.objects import Node
from workers.route.pod_cidrs import Network, read_network


@dataclass(frozen=True, slots=True)
class PodCidr:
    """A network that a Node has for its Pods."""

    network: Network
    node: str

    def __str__(self) -> str:
        return f"{self.network} of {self.node}"


async def check_pod_cidrs(context: CheckContext) -> Iterable[Finding]:
    """Whether each Node's pod CIDRs can have routes."""
    if not context.configures_routes:
        return [ok("no routes are configured")]
    scheme = (await require_provider(context)).scheme
    nodes = [node for node in await list_nodes(context) if not node.is_foreign(scheme)]
    return evaluate_pod_cidrs([*_networks(context.settings.cluster_cidr)], nodes)


def evaluate_pod_cidrs(cluster: Sequence[Network], nodes: Sequence[Node]) -> Iterator[Finding]:
    """What is wrong with the pod CIDRs of `nodes` in the networks of --cluster-cidr."""
    cidrs = [PodCidr(each, node.name) for node in nodes for each in _networks(node.pod_cidrs)]
    found = [*_missing(nodes), *_outside(cluster, cidrs), *_unused(cluster, cidrs)]
    found += _overlapping(cidrs)
    yield from found or [ok(f"of {pluralize(len(nodes), 'node')}, all inside {_text(cluster)}")]


def _missing(nodes: Iterable[Node]) -> Iterator[Finding]:
    without = [node.name for node in nodes if not node.pod_cidrs]
    if without:
        yield failed(
            f"no pod CIDR, so no route: {abbreviate(without)}",
            "run kube-controller-manager with --allocate-node-cidrs=true and the same "
            "--cluster-cidr, or set --configure-cloud-routes=false",
        )


def _outside(cluster: Sequence[Network], cidrs: Iterable[PodCidr]) -> Iterator[Finding]:
    """CIDRs in no cluster network; one finding for a family that is not there at all."""
    families = {network.version for network in cluster}
    outside: dict[int, list[str]] = {}
    for cidr in cidrs:
        if not _is_inside(cidr.network, cluster):
            outside.setdefault(cidr.network.version, []).append(str(cidr))
    for version in sorted(outside.keys() - families):
        yield failed(
            f"--cluster-cidr {_text(cluster)} has no IPv{version} network, "
            f"nodes have: {abbreviate(outside[version])}",
            f"add the cluster's IPv{version} network to --cluster-cidr",
        )
    names = [name for version in sorted(outside.keys() & families) for name in outside[version]]
    if names:
        yield failed(
            f"outside --cluster-cidr {_text(cluster)}: {abbreviate(names)}",
            "give --cluster-cidr as kube-controller-manager has it; "
            "routes outside it are never cleaned up",
        )


def _is_inside(network: Network, cluster: Iterable[Network]) -> bool:
    return any(
        network.network_address in each and network.broadcast_address in each for each in cluster
    )


def _unused(cluster: Iterable[Network], cidrs: Iterable[PodCidr]) -> Iterator[Finding]:
    used = {cidr.network.version for cidr in cidrs}
    for network in cluster:
        if used and network.version not in used:
            yield warning(
                f"--cluster-cidr has {network}, and no node an IPv{network.version} pod CIDR",
                "give kube-controller-manager the same --cluster-cidr, or leave this network out",
            )


def _overlapping(cidrs: Iterable[PodCidr]) -> Iterator[Finding]:
    overlaps, widest = [], None
    for cidr in sorted(cidrs, key=_outer_first):
        if widest and widest.network.overlaps(cidr.network):
            overlaps.append(f"{widest} and {cidr}")
        else:
            widest = cidr
    if overlaps:
        yield failed(
            f"pod CIDRs overlap: {abbreviate(overlaps)}",
            "let all but one of these Nodes register again: a route leads to one of them",
        )


def _outer_first(cidr: PodCidr) -> tuple[int, int, int]:
    """An order in which a network stands directly before those inside it."""
    network = cidr.network
    return (network.version, int(network.network_address), network.prefixlen)


def _networks(written: Sequence[str]) -> Iterator[Network]:
    yield from (network for each in written if (network := read_network(each)))


def _text(cluster: Iterable[Network]) -> str:
    return ",".join(map(str, cluster))


CHECK = Check("pod-cidrs", check_pod_cidrs)
