"""Whether Nodes wait for their initialisation although somebody should be at it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ccm.checks.check import Check
from ccm.checks.finding import Finding, counted, failed, ok, some
from ccm.checks.look.lease import timestamp
from ccm.checks.site import Site
from ccm.durations import format_duration
from ccm.model.node import Node
from ccm.model.objects import text

LONG = 300.0  # seconds after which a Node should not wait any more


@dataclass(frozen=True, slots=True)
class Facts:
    scheme: str
    nodes: Sequence[Node]
    leader: str
    now: float  # of the API server
    long: float


async def look(site: Site) -> Facts:
    scheme, nodes = (await site.provider()).scheme, await site.nodes()
    return Facts(scheme, nodes, await site.leader(), await site.server_now(), LONG)


def judge(facts: Facts) -> Iterator[Finding]:
    waiting = [
        node for node in facts.nodes if node.is_uninitialized and not node.is_foreign(facts.scheme)
    ]
    late = [node.name for node in waiting if _age(node, facts.now) > facts.long]
    if late and facts.leader:
        yield failed(
            f"not initialised for more than {format_duration(facts.long)}, "
            f"although {facts.leader} leads: {some(late)}",
            "see the Events of these Nodes, and 'ccm-supervisor status' where it leads",
        )
    elif waiting:
        who = facts.leader or "a controller"
        yield ok(f"{counted(len(waiting), 'node')} to be initialised by {who}")
    else:
        yield ok("none")


def _age(node: Node, now: float) -> float:
    return now - timestamp(text(node.meta.get("creationTimestamp")))


CHECK = Check("waiting-nodes", look, judge)
