"""How many cloud calls an hour this cluster will need, against what the quota allows."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil

from ccm.checks.api_server import list_nodes
from ccm.checks.cloud import probe_reads, require_provider
from ccm.checks.context import CheckContext
from ccm.checks.finding import Finding, failed, ok, warning
from ccm.cloud.interface import Quota
from ccm.controllers import LIFECYCLE, NODE, is_enabled
from ccm.durations import format_duration
from ccm.settings import Settings

HOUR = 3600.0
SHARE_WARNING = 0.5  # of the quota; beyond that little is left for changes
FULL_PASS_WARNING = 600.0  # seconds to ask about all nodes once


@dataclass(frozen=True, slots=True)
class BudgetEvidence:
    """`cost` is what one read of a part cost, by class of the budget."""

    settings: Settings
    quotas: Mapping[str, Quota]
    batch_size: int
    nodes: int
    unready: int
    cost: Mapping[str, Counter[str]]


async def check_budget(context: CheckContext) -> Iterable[Finding]:
    """Whether the periodic calls of this cluster fit into the quota."""
    provider, nodes = await require_provider(context), await list_nodes(context)
    ours = [node for node in nodes if not node.is_foreign(provider.provider_ids)]
    cost: dict[str, Counter[str]] = {}
    for read in await probe_reads(context):
        cost[read.part] = cost.get(read.part, Counter()) | read.spent  # the dearer one, by class
    evidence = BudgetEvidence(
        settings=context.settings,
        quotas=provider.quotas,
        batch_size=provider.instances.batch_size if provider.instances else 1,
        nodes=len(ours),
        unready=sum(not node.is_ready for node in ours),
        cost=cost,
    )
    return evaluate_budget(evidence)


def evaluate_budget(evidence: BudgetEvidence) -> Iterator[Finding]:
    """Calls an hour, and the time of a full pass, against the quota."""
    settings, quotas = evidence.settings, evidence.quotas
    for name in sorted(settings.cloud_rate.keys() - quotas.keys()):
        yield failed(
            f"--cloud-rate names class {name!r}, which the provider does not have",
            f"choose from: {', '.join(sorted(quotas))}",
        )
    rates = {
        name: settings.cloud_rate.get(name, quota.per_second) * (1 - settings.cloud_reserve)
        for name, quota in quotas.items()
    }
    hourly = _hourly(evidence)
    for budget, calls in sorted(hourly.items()):
        yield _of_hour(budget, calls, rates.get(budget, 0.0) * HOUR)
    yield from _of_full_pass(evidence, rates)
    if not hourly:
        yield ok("no periodic calls")


def _hourly(evidence: BudgetEvidence) -> dict[str, float]:
    """Periodic calls: node status updates, monitoring of unready nodes, lists of routes."""
    settings = evidence.settings
    updates = _batches(evidence, NODE, evidence.nodes) / settings.node_status_update_frequency
    lookups = _batches(evidence, LIFECYCLE, evidence.unready) / settings.node_monitor_period
    routes = 1 / settings.route_reconciliation_period
    passes = {"instances": updates + lookups, "routes": routes}
    calls: dict[str, float] = {}
    for part, per_second in passes.items():
        for budget, cost in evidence.cost.get(part, Counter()).items():
            calls[budget] = calls.get(budget, 0.0) + cost * per_second * HOUR
    return {budget: count for budget, count in calls.items() if count}


def _batches(evidence: BudgetEvidence, controller: str, nodes: int) -> int:
    """Reads for so many nodes, shared among the node workers; 0 when the controller is off."""
    if not is_enabled(controller, evidence.settings.controllers):
        return 0
    workers = min(evidence.settings.node_workers, nodes)
    return workers * ceil(nodes / workers / evidence.batch_size) if workers else 0


def _of_hour(budget: str, calls: float, allowed: float) -> Finding:
    share = calls / allowed if allowed else float("inf")
    message = f"{budget}: about {calls:.0f} calls an hour of {allowed:.0f} ({share:.0%})"
    remedy = (
        "lengthen --node-status-update-frequency, --node-monitor-period or "
        f"--route-reconciliation-period; if your quota is higher, set --cloud-rate={budget}=…"
    )
    if share > 1:
        return failed(f"{message}: more than the quota allows", remedy)
    return warning(message, remedy) if share > SHARE_WARNING else ok(message)


def _of_full_pass(evidence: BudgetEvidence, rates: Mapping[str, float]) -> Iterator[Finding]:
    reads = _batches(evidence, NODE, evidence.nodes)
    for budget, cost in evidence.cost.get("instances", Counter()).items():
        seconds = reads * cost / rates[budget] if rates.get(budget) else 0.0
        if seconds > FULL_PASS_WARNING:
            yield warning(
                f"{budget}: to ask about all {evidence.nodes} nodes once takes "
                f"{format_duration(round(seconds))}: as long may a new node wait",
                f"if your quota is higher, set --cloud-rate={budget}=…",
            )
