"""How many cloud calls an hour this cluster will need, against what the quota allows."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from ccm.checks.check import Check
from ccm.checks.finding import Finding, failed, ok, warning
from ccm.checks.look.cloud import Read
from ccm.checks.site import Site
from ccm.cloud.interface import Quota
from ccm.controllers import LIFECYCLE, NODE
from ccm.durations import format_duration
from ccm.settings import Settings

HOUR = 3600.0
MUCH = 0.5  # share of the quota beyond which little is left for changes
LONG_START = 600.0  # seconds to ask about all nodes once
TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Facts:
    """`cost` is what one read of a part cost, by class."""

    settings: Settings
    quotas: Mapping[str, Quota]
    batch_size: int
    nodes: int
    unready: int
    does_nodes: bool
    does_lifecycle: bool
    cost: Mapping[str, Counter[str]]


async def look(site: Site) -> Facts:
    provider, nodes = await site.provider(), await site.nodes()
    ours = [node for node in nodes if not node.is_foreign(provider.scheme)]
    return Facts(
        settings=site.settings,
        quotas=provider.quotas,
        batch_size=provider.instances.batch_size if provider.instances else 1,
        nodes=len(ours),
        unready=sum(not node.is_ready for node in ours),
        does_nodes=site.does(NODE),
        does_lifecycle=site.does(LIFECYCLE),
        cost=_cost(await site.reads()),
    )


def _cost(reads: Sequence[Read]) -> dict[str, Counter[str]]:
    cost: dict[str, Counter[str]] = {}
    for read in reads:
        cost[read.part] = cost.get(read.part, Counter()) | read.spent  # the dearer one, by class
    return cost


def judge(facts: Facts) -> Iterator[Finding]:
    yield from _unknown_classes(facts)
    rates = dict(_rates(facts))
    hourly = _hourly(facts)
    for budget, calls in sorted(hourly.items()):
        rate = rates.get(budget, 0.0)
        yield _of_hour(budget, calls, rate * HOUR)
    yield from _of_start(facts, rates)
    if not hourly:
        yield ok("no calls but for changes")


def _unknown_classes(facts: Facts) -> Iterator[Finding]:
    for name in sorted(facts.settings.cloud_rate.keys() - facts.quotas.keys()):
        known = ", ".join(sorted(facts.quotas))
        yield failed(
            f"--cloud-rate names class {name!r}, which the provider does not have",
            f"choose from: {known}",
        )


def _rates(facts: Facts) -> Iterator[tuple[str, float]]:
    """Calls a second that the budget will grant, by class."""
    for name, quota in facts.quotas.items():
        rate = facts.settings.cloud_rate.get(name, quota.per_second)
        yield name, rate * (1 - facts.settings.cloud_reserve)


def _hourly(facts: Facts) -> dict[str, float]:
    """Calls that come whatever happens: refreshing, rounds about unready nodes, lists of routes."""
    settings = facts.settings
    passes = {
        "instances": (
            facts.does_nodes * _batches(facts, facts.nodes) / settings.node_status_update_frequency
            + facts.does_lifecycle * _batches(facts, facts.unready) / settings.node_monitor_period
        ),
        "routes": 1 / settings.route_reconciliation_period,
    }
    calls: dict[str, float] = {}
    for part, per_second in passes.items():
        for budget, cost in facts.cost.get(part, Counter()).items():
            calls[budget] = calls.get(budget, 0.0) + cost * per_second * HOUR
    return {budget: count for budget, count in calls.items() if count}


def _batches(facts: Facts, nodes: int) -> int:
    """Reads for so many nodes, shared among the node workers."""
    workers = min(facts.settings.node_workers, nodes)
    return workers * ceil(nodes / workers / facts.batch_size) if workers else 0


def _of_hour(budget: str, calls: float, allowed: float) -> Finding:
    share = calls / allowed if allowed else float("inf")
    seen = f"{budget}: about {calls:.0f} calls an hour of {allowed:.0f} ({share:.0%})"
    remedy = (
        "lengthen --node-status-update-frequency, --node-monitor-period or "
        f"--route-reconciliation-period; if your quota is higher, say so: --cloud-rate={budget}=…"
    )
    if share > 1:
        return failed(f"{seen}: it will never keep up", remedy)
    return warning(seen, remedy) if share > MUCH else ok(seen)


def _of_start(facts: Facts, rates: Mapping[str, float]) -> Iterator[Finding]:
    reads = _batches(facts, facts.nodes) if facts.does_nodes else 0
    for budget, cost in facts.cost.get("instances", Counter()).items():
        seconds = reads * cost / rates[budget] if rates.get(budget) else 0.0
        if seconds > LONG_START:
            yield warning(
                f"{budget}: to ask about all {facts.nodes} nodes once takes "
                f"{format_duration(round(seconds))}: as long may a new node wait",
                f"if your quota is higher, say so: --cloud-rate={budget}=…",
            )


CHECK = Check("cloud-budget", look, judge, TIMEOUT)
