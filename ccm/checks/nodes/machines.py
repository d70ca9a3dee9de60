"""Whether the cloud knows the machines behind the Nodes; of many Nodes, one read's worth."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ccm.checks.check import Check
from ccm.checks.finding import Finding, NotChecked, counted, failed, ok, some, warning
from ccm.checks.site import Site
from ccm.model.cloud import Answer, Gone, Unknown
from ccm.model.node import Node


@dataclass(frozen=True, slots=True)
class Facts:
    nodes: Sequence[Node]
    answers: Mapping[str, Answer]  # by the name of the Node


async def look(site: Site) -> Facts:
    nodes = await site.nodes()
    reads = [read for read in await site.reads() if read.part == "instances" and not read.error]
    if not reads:
        raise NotChecked("the cloud was not asked about machines, or gave no answer")
    return Facts(nodes, {name: said for read in reads for name, said in read.answers.items()})


def judge(facts: Facts) -> Iterator[Finding]:
    asked = [(node, facts.answers[node.name]) for node in facts.nodes if node.name in facts.answers]
    gone = [node for node, answer in asked if isinstance(answer, Gone)]
    unknown = {node.name: answer.why for node, answer in asked if isinstance(answer, Unknown)}
    found = [
        *_strangers([node.name for node in gone if not node.provider_id]),
        *_lost([node.name for node in gone if node.provider_id and node.is_ready]),
    ]
    if unknown:
        why = next(iter(unknown.values()))
        found.append(
            warning(
                f"the cloud gives no clear answer about {some([*unknown])}: {why}",
                "see what the cloud has under these names",
            )
        )
    yield from found or [ok(f"{counted(len(asked), 'node')} asked about, none is unheard of")]


def _strangers(names: Sequence[str]) -> Iterator[Finding]:
    if names:
        yield failed(
            f"the cloud knows no machine of these names: {some(names)}",
            "name the Nodes as the cloud names its machines (kubelet --hostname-override), "
            "or give them their ID (kubelet --provider-id)",
        )


def _lost(names: Sequence[str]) -> Iterator[Finding]:
    if names:
        yield failed(
            f"the cloud says that the machines of Ready Nodes are gone: {some(names)}",
            "correct account, project or region in --cloud-config: it is another part of the cloud",
        )


CHECK = Check("machines", look, judge)
