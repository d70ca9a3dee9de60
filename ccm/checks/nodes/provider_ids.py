"""Whether the Nodes are of the cloud that was chosen."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ccm.checks.check import Check
from ccm.checks.finding import Finding, counted, failed, ok, warning
from ccm.checks.site import Site
from ccm.model.node import Node


@dataclass(frozen=True, slots=True)
class Facts:
    provider: str
    scheme: str
    nodes: Sequence[Node]


async def look(site: Site) -> Facts:
    scheme = (await site.provider()).scheme
    return Facts(site.settings.cloud_provider, scheme, await site.nodes())


def judge(facts: Facts) -> Iterator[Finding]:
    ids = [node.provider_id for node in facts.nodes if node.provider_id]
    schemes = Counter(each.partition("://")[0] for each in ids)
    others = {scheme: count for scheme, count in schemes.items() if scheme != facts.scheme}
    seen = ", ".join(f"{counted(count, 'node')} of {each}" for each, count in schemes.most_common())
    if not others:
        yield ok(seen or "no node has a provider ID yet")
    elif facts.scheme in schemes:
        yield warning(
            f"{seen}: those that are not of {facts.scheme} are left alone",
            "let a controller of their cloud look after them",
        )
    else:
        yield failed(
            f"{seen}, and none of {facts.scheme}: all would be left alone",
            f"choose their cloud: --cloud-provider is {facts.provider}",
        )


CHECK = Check("provider-ids", look, judge)
