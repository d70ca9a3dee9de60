"""From a change to our patch, in an idle system full of nodes, by the API server's own clock.

Both ends are from the audit log: when the API server had answered the one who made the change, and
when our patch reached it. A new node includes the cloud's answer; a changed label needs none.
"""

import asyncio

from bench.figures import Row, percentile
from bench.nodes import kubelets_node
from bench.plan import Measured, Plan
from bench.site import Site, crowd, site
from ccm.kube.client import MERGE_PATCH
from tests.support.kube.audit import AuditEntry

SAMPLES = 200
PAUSE = 0.05  # seconds between two changes
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"


async def measure(plan: Plan) -> Measured:
    async with site(plan) as place, crowd(place, plan.most):
        rows = [await new_nodes(place), await _changed_labels(place)]
    return Measured(rows, [])


async def new_nodes(place: Site) -> Row:
    first = place.plan.most + 1
    names = await place.add_machines(SAMPLES, first)
    for number, name in enumerate(names, first):
        await place.kube.post("/api/v1/nodes", kubelets_node(name))
        await place.spectator.until_ready(number)
        await asyncio.sleep(PAUSE)
    return _row(place, "new node, to the first patch", "create", "status", names)


async def _changed_labels(place: Site) -> Row:
    """The beta label of a zone goes wrong; it is made to agree with the GA one."""
    await place.count_again()
    names = [f"vm-{number}" for number in range(1, SAMPLES + 1)]
    for name in names:
        body = {"metadata": {"labels": {BETA_ZONE: "wrong"}}}
        await place.kube.patch(f"/api/v1/nodes/{name}", MERGE_PATCH, body)
        await asyncio.sleep(PAUSE)
    await asyncio.sleep(1.0)
    return _row(place, "changed label, to the patch", "patch", "", names)


def _row(place: Site, what: str, verb: str, subresource: str, names: list[str]) -> Row:
    nodes = [
        entry for entry in place.cluster.audit() if entry.resource == "nodes" and entry.is_write
    ]
    changes = {e.name: e for e in nodes if e.user_agent == "bench" and e.verb == verb}
    patches: dict[str, AuditEntry] = {}
    for entry in nodes:
        if entry.user_agent != "bench" and entry.subresource == subresource:
            patches.setdefault(entry.name, entry)
    pairs = [(changes[name], patches[name]) for name in names]
    after_answer = [(patch.received_at - change.answered_at) * 1000 for change, patch in pairs]
    after_request = [(patch.received_at - change.received_at) * 1000 for change, patch in pairs]
    return {
        "nodes": place.plan.most,
        "change": what,
        "samples": len(names),
        "p50 ms": percentile(after_answer, 0.5),
        "p99 ms": percentile(after_answer, 0.99),
        "most ms": max(after_answer),
        "p50 ms with the change's own write": percentile(after_request, 0.5),
        "p99 ms with the change's own write": percentile(after_request, 0.99),
    }
