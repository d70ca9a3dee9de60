"""Do the Nodes belong to this cloud, are they initialized in time, and do their pod CIDRs fit."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ccm.checks.api_server import list_nodes, server_clock
from ccm.checks.cloud import probe_reads, require_provider
from ccm.checks.context import CheckContext
from ccm.checks.finding import Finding, NotChecked, abbreviate, failed, ok, pluralize, warning
from ccm.checks.leaders import age_of, current_leader
from ccm.durations import format_duration
from ccm.model.cloud import Answer, Gone, Network, Unknown, read_network
from ccm.model.objects import Node

INITIALIZATION_DEADLINE = 300.0  # seconds after which a Node should not be tainted any more


async def check_provider_ids(context: CheckContext) -> Iterable[Finding]:
    """Whether the Nodes belong to the cloud that was chosen."""
    provider_ids = (await require_provider(context)).provider_ids
    nodes, provider = await list_nodes(context), context.settings.cloud_provider
    return [evaluate_provider_ids(nodes, provider_ids, provider)]


def evaluate_provider_ids(
    nodes: Iterable[Node], provider_ids: re.Pattern[str], provider: str
) -> Finding:
    """How many Nodes have IDs of the provider and of others, and what becomes of those."""
    identified = [node for node in nodes if node.provider_id]
    foreign = [node for node in identified if node.is_foreign(provider_ids)]
    schemes = Counter(node.provider_id.partition("://")[0] for node in foreign)
    counts = ", ".join(f"{pluralize(n, 'node')} of {each}" for each, n in schemes.most_common())
    ours = len(identified) - len(foreign)
    if not foreign:
        return ok(f"{pluralize(ours, 'node')} of {provider}")
    if ours:
        return warning(
            f"left alone: {counts}; looked after: {pluralize(ours, 'node')} of {provider}",
            "let a controller of their cloud look after them",
        )
    return failed(
        f"{counts}, and none of {provider}: all would be left alone",
        f"choose their cloud: --cloud-provider is {provider}",
    )


async def check_kubelets(context: CheckContext) -> Iterable[Finding]:
    """Whether kubelets leave the initialization of their Nodes to us.

    A kubelet without `--cloud-provider=external` registers its Node without the taint, and then no
    controller ever looks at it.
    """
    nodes = await list_nodes(context)
    alone = [node.name for node in nodes if not node.provider_id and not node.is_uninitialized]
    if not alone:
        return [ok(f"{pluralize(len(nodes), 'node')}, each tainted or with a provider ID")]
    return [
        failed(
            f"without taint and without provider ID, so never initialized: {abbreviate(alone)}",
            "start their kubelets with --cloud-provider=external, delete these Nodes "
            "and restart the kubelets, so that they register again",
        )
    ]


async def check_initialization(context: CheckContext) -> Iterable[Finding]:
    """Whether Nodes keep their taint although someone leads."""
    provider_ids = (await require_provider(context)).provider_ids
    nodes = [node for node in await list_nodes(context) if not node.is_foreign(provider_ids)]
    leader, now = await current_leader(context), (await server_clock(context))()
    return [evaluate_initialization(nodes, leader, now)]


def evaluate_initialization(ours: Iterable[Node], leader: str, now: float) -> Finding:
    """Whether these Nodes should be initialized by now, the API server's wall clock."""
    waiting = [node for node in ours if node.is_uninitialized]
    late = [node.name for node in waiting if age_of(node, now) > INITIALIZATION_DEADLINE]
    if late and leader:
        return failed(
            f"not initialized for more than {format_duration(INITIALIZATION_DEADLINE)}, "
            f"although {leader} leads: {abbreviate(late)}",
            "see the Events of these Nodes, and 'ccm-supervisor status' where it leads",
        )
    if not waiting:
        return ok("none")
    return ok(f"{pluralize(len(waiting), 'node')} to be initialized by {leader or 'a controller'}")


async def check_machines(context: CheckContext) -> Iterable[Finding]:
    """Whether the cloud knows the machines behind the Nodes; of many Nodes, one read's worth."""
    nodes, reads = await list_nodes(context), await probe_reads(context)
    answered = [read.answers for read in reads if read.part == "instances" and not read.error]
    if not answered:
        raise NotChecked("the cloud was not asked about machines, or gave no answer")
    return evaluate_machines(nodes, {name: it for each in answered for name, it in each.items()})


def evaluate_machines(nodes: Iterable[Node], answers: Mapping[str, Answer]) -> Iterator[Finding]:
    """What the cloud's answers, by the name of the Node, mean for the Nodes."""
    asked = [(node, answers[node.name]) for node in nodes if node.name in answers]
    gone = [node for node, answer in asked if isinstance(answer, Gone)]
    unnamed = [node.name for node in gone if not node.provider_id]
    lost = [node.name for node in gone if node.provider_id and node.is_ready]
    unclear = {node.name: answer.why for node, answer in asked if isinstance(answer, Unknown)}
    if unnamed:
        yield failed(
            f"the cloud knows no machine of these names: {abbreviate(unnamed)}",
            "name the Nodes as the cloud names its machines (kubelet --hostname-override), "
            "or give them their ID (kubelet --provider-id)",
        )
    if lost:
        yield failed(
            f"the cloud reports the machines of Ready Nodes as gone: {abbreviate(lost)}",
            "correct account, project or region in --cloud-config: it is another part of the cloud",
        )
    if unclear:
        first, why = next(iter(unclear.items()))
        whose = f"; of {first}" if len(unclear) > 1 else ""
        yield warning(
            f"the cloud gives no clear answer about {abbreviate([*unclear])}{whose}: {why}",
            "see what the cloud has under these names",
        )
    if not (unnamed or lost or unclear):
        yield ok(f"{pluralize(len(asked), 'node')} asked about, the cloud knows them")


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
    provider_ids = (await require_provider(context)).provider_ids
    nodes = [node for node in await list_nodes(context) if not node.is_foreign(provider_ids)]
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
            "a pod CIDR outside it gets no route",
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
