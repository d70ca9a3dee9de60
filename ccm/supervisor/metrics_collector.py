"""Collects all metrics at each scrape: the status, counters of all processes, health checks."""

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    UntypedMetricFamily,
)
from prometheus_client.core import Metric as MetricFamily
from prometheus_client.registry import Collector

from ccm import metrics
from ccm.counters import Counters, Histogram
from ccm.metrics import Metric, MetricType, catalogue
from ccm.model.status import Status
from ccm.processes import open_files, resident_bytes
from ccm.settings import Settings
from ccm.supervisor import status_metrics
from ccm.supervisor.https.endpoints import HealthEndpoints
from ccm.supervisor.leader_election import LeaderElector
from ccm.supervisor.nodes import UninitializedNodes
from ccm.supervisor.outages import OutageCause
from ccm.supervisor.status_metrics import Sample, controller_of_worker, queue_of_worker
from ccm.supervisor.worker_counters import CounterTotals, Series, Value, WorkerCounters, add, add_up

SUPERVISOR = "supervisor"  # the `controller` label of what the supervisor's own process counts

FAMILIES: dict[MetricType, type[CounterMetricFamily | GaugeMetricFamily | UntypedMetricFamily]] = {
    MetricType.COUNTER: CounterMetricFamily,
    MetricType.GAUGE: GaugeMetricFamily,
    MetricType.UNTYPED: UntypedMetricFamily,
}
"""Of single numbers, by type."""


@dataclass(frozen=True, eq=False)
class SupervisorCollector(Collector):
    """All metrics but those of health checks, including those that have no value yet."""

    settings: Settings
    status: Callable[[], Status]
    worker_counters: WorkerCounters
    own_counters: tuple[Counters, ...]
    grant_waits: Callable[[], Iterator[tuple[str, str, Histogram]]]  # class, priority
    uninitialized: UninitializedNodes
    leaders: Callable[[], Iterator[LeaderElector]]
    certificate_expiry: Callable[[], float | None]
    started: float = field(default_factory=time.time)
    outage: OutageCause = field(default_factory=OutageCause)

    def collect(self) -> Iterator[MetricFamily]:
        """Every family, in the order of the catalogue."""
        values: defaultdict[Metric, dict[tuple[str, ...], Value]] = defaultdict(dict)
        for metric, labels, value in self._samples():
            values[metric][labels] = [value]
        for worker, totals in self._counters():
            owner = {
                "worker": worker,
                "controller": controller_of_worker(worker),
                "name": queue_of_worker(worker),
            }
            for (metric, rest), numbers in totals.items():
                first = [owner[label] for label in metric.labels[:1] if label in owner]
                series, labels = values[metric], (*first, *rest)
                series[labels] = add_up(series.get(labels, ()), numbers)
        for budget_class, priority, histogram in self.grant_waits():
            values[metrics.GRANT_WAIT_SECONDS][budget_class, priority] = histogram.export()
        upstream = upstream_cloud_calls(values[metrics.CLOUD_CALL_SECONDS])
        provider = re.sub(r"\W", "_", self.settings.cloud_provider)
        for metric in catalogue():
            if metric in upstream:
                named = replace(metric, name=metric.name.replace("PROVIDER", provider))
                yield _family(named, upstream[metric])
            elif metric.group != metrics.HEALTH:
                yield _family(metric, values[metric] or _initial(metric))

    def _counters(self) -> Iterator[tuple[str, CounterTotals]]:
        yield from self.worker_counters.by_worker().items()
        own: CounterTotals = {}
        for counters in self.own_counters:
            add(own, counters.export())
        yield SUPERVISOR, own

    def _samples(self) -> Iterator[Sample]:
        status = self.status()
        yield from status_metrics.from_status(status, self.settings.controllers)
        outage = status["cloud_outage"]
        yield metrics.CLOUD_OUTAGE, (self.outage.label(outage),), outage.get("seconds", 0.0)
        yield from self._own_process()
        for leader in self.leaders():
            yield metrics.LEADER_STATUS, (leader.lease_name,), float(leader.is_leading())
            yield metrics.LEADER_SLOWPATH, (leader.lease_name,), leader.slow_paths
        for worker in status["workers"]:
            name = worker["name"]
            yield metrics.WORKER_EXITS, (name,), self.worker_counters.exits[name]
        yield metrics.NODES_UNINITIALIZED, (), len(self.uninitialized)
        oldest = self.uninitialized.oldest(time.monotonic())
        yield metrics.OLDEST_UNINITIALIZED_SECONDS, (), oldest

    def _own_process(self) -> Iterator[Sample]:
        yield metrics.PROCESS_CPU_SECONDS, (), time.process_time()
        yield metrics.PROCESS_RESIDENT_BYTES, (), resident_bytes()
        yield metrics.PROCESS_START_TIME, (), self.started
        count, limit = open_files()
        yield metrics.PROCESS_OPEN_FDS, (), count
        yield metrics.PROCESS_MAX_FDS, (), limit
        if expiry := self.certificate_expiry():
            yield metrics.CERTIFICATE_EXPIRY, (), expiry


def upstream_cloud_calls(calls: Series) -> dict[Metric, Series]:
    """What upstream's providers count of these calls, which are `CLOUD_CALL_SECONDS`."""
    succeeded: dict[tuple[str, ...], Value] = {}
    failed: dict[tuple[str, ...], Value] = {}
    throttled: dict[tuple[str, ...], Value] = {}
    for (_, operation, result), numbers in calls.items():
        key = (operation,)
        if result == "ok":
            succeeded[key] = add_up(succeeded.get(key, ()), numbers)
            continue
        count = [sum(numbers[1:])]
        failed[key] = add_up(failed.get(key, ()), count)
        if result == "throttled":
            throttled[key] = add_up(throttled.get(key, ()), count)
    return {
        metrics.UPSTREAM_CALL_SECONDS: succeeded,
        metrics.UPSTREAM_CALLS_FAILED: failed,
        metrics.UPSTREAM_CALLS_THROTTLED: throttled,
    }


class HealthCollector(Collector):
    """Results of the health checks, which run for each scrape too, so that they need no probe."""

    def __init__(self, health: HealthEndpoints) -> None:
        self._health = health

    def collect(self) -> Iterator[MetricFamily]:
        """Both families of upstream's component SLIs."""
        for endpoint in self._health.endpoints:
            self._health.report(endpoint)
        statuses: dict[tuple[str, ...], Value] = {}
        counts: dict[tuple[str, ...], Value] = {}
        for endpoint, name, check in self._health.statistics():
            labels = (name, endpoint)
            statuses[labels] = [float(check.why is None)]
            counts[(*labels, "success")] = [check.successes]
            counts[(*labels, "error")] = [check.errors]
        yield _family(metrics.HEALTHCHECK_STATUS, statuses)
        yield _family(metrics.HEALTHCHECKS, counts)


def _initial(metric: Metric) -> Series:
    """A metric without labels begins at 0; the label values of others are not known yet."""
    if metric.labels:
        return {}
    return {(): Histogram(metric.buckets).export() if metric.buckets else [0.0]}


def _family(metric: Metric, series: Series) -> MetricFamily:
    if metric.type is MetricType.HISTOGRAM:
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        bounds = (*(f"{bound:g}" for bound in metric.buckets), "+Inf")
        for labels, (total, *counts) in series.items():
            # Prometheus' buckets are cumulative.
            buckets = list(zip(bounds, accumulate(counts), strict=True))
            histogram.add_metric(labels, buckets, total)
        return histogram
    family = FAMILIES[metric.type](metric.name, metric.help, labels=metric.labels)
    for labels, (value,) in series.items():
        family.add_metric(labels, value)
    return family
