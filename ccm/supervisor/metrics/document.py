"""`python -m ccm.supervisor.metrics.document`: the page docs/metrics.md, from the declarations."""

from itertools import groupby

from ccm.metrics import Kind, Metric, catalogue

HEAD = """\
# Metrics

Made by `make docs` from the code; a test compares them. `/metrics` of the supervisor serves all of
them, those of its workers included, so there is one target a replica; [endpoints](endpoints.md)
says who may read it. Names without `ccm_` are upstream's, and mean the same here.

**Counters never go back** while the supervisor runs: what a worker counted stays when it is started
again. At most the last second of a worker that dies is lost.

**Labels** are few and never the name of an object. `controller` is `node` (all its workers
together), `route`, `service`, `volume-label`, or `supervisor` for its own process; `worker` is one
worker as in `status`. What would be the 65th set of labels of one metric in one process is counted
as `other`.

**Replicas.** One that stands by serves the same metrics. Of nodes and watches it shows what it
sees; what was done is counted by the one that did it. Sum counters over replicas; for what is so
now, ask the one that acts: `… and on (instance) ccm_permission_seconds > 0`.

Upstream's `service_controller_nodesync_latency_seconds` is not here: hosts are updated one balancer
at a time, so there is no pass over all of them to measure.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for group, members in groupby(catalogue(), lambda metric: metric.group):
        head = ["| name | type | labels | meaning |", "|---|---|---|---|"]
        parts.append("\n".join([f"## {group}\n", *head, *(_row(it) for it in members), ""]))
    return "\n".join(parts)


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    text = metric.help.replace("<", "\\<")
    if metric.kind is Kind.HISTOGRAM:
        text += f" Buckets: {', '.join(f'{bound:g}' for bound in metric.buckets)}."
    return f"| `{metric.name}` | {metric.kind} | {labels} | {text} |"


if __name__ == "__main__":
    print(page(), end="")
