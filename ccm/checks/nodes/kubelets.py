"""Whether kubelets leave the initialisation of their Nodes to us.

A kubelet without `--cloud-provider=external` registers its Node without the taint, and then no
controller ever looks at it.
"""

from collections.abc import Iterator, Sequence

from ccm.checks.check import Check
from ccm.checks.finding import Finding, counted, failed, ok, some
from ccm.checks.site import Site
from ccm.model.node import Node


async def look(site: Site) -> Sequence[Node]:
    return await site.nodes()


def judge(nodes: Sequence[Node]) -> Iterator[Finding]:
    alone = [node.name for node in nodes if not node.provider_id and not node.is_uninitialized]
    if not alone:
        yield ok(f"{counted(len(nodes), 'node')}, each tainted or with a provider ID")
        return
    yield failed(
        f"without taint and without provider ID, so never initialised: {some(alone)}",
        "start their kubelets with --cloud-provider=external, delete these Nodes "
        "and restart the kubelets, so that they register again",
    )


CHECK = Check("kubelets", look, judge)
