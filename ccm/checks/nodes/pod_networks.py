"""Whether the Nodes' pod networks fit --cluster-cidr and each other, where routes are made."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ccm.checks.check import Check
from ccm.checks.finding import Finding, counted, failed, ok, some, warning
from ccm.checks.site import Site
from ccm.model.node import Node
from workers.route.networks import Network, read_network


@dataclass(frozen=True, slots=True)
class Facts:
    cluster: Sequence[Network]
    nodes: Sequence[Node]  # that would get routes


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """A pod network; claims in their order let overlaps stand next to each other."""

    version: int
    first: int
    last: int
    node: str
    written: str


async def look(site: Site) -> Facts | None:
    """None where no routes are made."""
    if not site.makes_routes:
        return None
    scheme = (await site.provider()).scheme
    nodes = [node for node in await site.nodes() if not node.is_foreign(scheme)]
    return Facts([*_networks(site.settings.cluster_cidr)], nodes)


def judge(facts: Facts | None) -> Iterator[Finding]:
    if facts is None:
        yield ok("no routes are made")
        return
    found = [*_missing(facts), *_outside(facts), *_unused(facts), *_overlapping(facts)]
    yield from found or [ok(f"of {counted(len(facts.nodes), 'node')}, all inside {_all(facts)}")]


def _missing(facts: Facts) -> Iterator[Finding]:
    without = [node.name for node in facts.nodes if not node.pod_cidrs]
    if without:
        yield failed(
            f"no pod network, so no route: {some(without)}",
            "run kube-controller-manager with --allocate-node-cidrs=true and the same "
            "--cluster-cidr, or set --configure-cloud-routes=false",
        )


def _outside(facts: Facts) -> Iterator[Finding]:
    """Networks that no cluster network holds; one finding for a family that is not there at all."""
    strangers = [claim for claim in _claims(facts.nodes) if not _is_inside(claim, facts.cluster)]
    families = {network.version for network in facts.cluster}
    for version in sorted({claim.version for claim in strangers} - families):
        names = [f"{c.written} of {c.node}" for c in strangers if c.version == version]
        yield failed(
            f"--cluster-cidr {_all(facts)} has no IPv{version} network, nodes have: {some(names)}",
            f"add the cluster's IPv{version} network to --cluster-cidr",
        )
    names = [f"{c.written} of {c.node}" for c in strangers if c.version in families]
    if names:
        yield failed(
            f"outside --cluster-cidr {_all(facts)}: {some(names)}",
            "give --cluster-cidr as kube-controller-manager has it; "
            "routes outside it are never cleaned up",
        )


def _unused(facts: Facts) -> Iterator[Finding]:
    used = {claim.version for claim in _claims(facts.nodes)}
    for network in facts.cluster:
        if used and network.version not in used:
            yield warning(
                f"--cluster-cidr has {network}, and no node an IPv{network.version} pod network",
                "give kube-controller-manager the same --cluster-cidr, or leave this network out",
            )


def _overlapping(facts: Facts) -> Iterator[Finding]:
    clashes, before = [], None
    for claim in sorted(_claims(facts.nodes)):
        if before and before.version == claim.version and claim.first <= before.last:
            clashes.append(f"{before.written} of {before.node} and {claim.written} of {claim.node}")
        if not before or (claim.version, claim.last) > (before.version, before.last):
            before = claim
    if clashes:
        yield failed(
            f"pod networks overlap: {some(clashes)}",
            "let all but one of these Nodes register again: a route leads to one of them",
        )


def _claims(nodes: Sequence[Node]) -> Iterator[Claim]:
    for node in nodes:
        for network in _networks(node.pod_cidrs):
            first, last = int(network.network_address), int(network.broadcast_address)
            yield Claim(network.version, first, last, node.name, str(network))


def _is_inside(claim: Claim, cluster: Sequence[Network]) -> bool:
    return any(
        claim.version == network.version
        and int(network.network_address) <= claim.first
        and claim.last <= int(network.broadcast_address)
        for network in cluster
    )


def _networks(written: Sequence[str]) -> Iterator[Network]:
    yield from (network for each in written if (network := read_network(each)))


def _all(facts: Facts) -> str:
    return ",".join(map(str, facts.cluster))


CHECK = Check("pod-networks", look, judge)
