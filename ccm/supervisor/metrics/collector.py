"""Reads the parts of the supervisor whenever `/metrics` is asked for; it counts nothing itself."""

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from ccm import metrics
from ccm.counters import Counters, Histogram
from ccm.metrics import Kind, Metric, catalogue
from ccm.model.objects import Json
from ccm.processes import open_files, resident_bytes
from ccm.settings import Settings
from ccm.supervisor.https.health import Health
from ccm.supervisor.leader import Leader
from ccm.supervisor.metrics import readings
from ccm.supervisor.metrics.families import Series, family
from ccm.supervisor.metrics.readings import Reading, controller_of, queue_of
from ccm.supervisor.metrics.totals import Sums, Totals, Value, add, plus
from ccm.supervisor.uninitialized import UninitializedNodes

OWN = "supervisor"
"""Whose it is what the supervisor's own process counts."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Where the numbers come from."""

    settings: Settings
    status: Callable[[], Json]
    totals: Totals
    counter_sets: tuple[Counters, ...]
    waits: Callable[[], Iterator[tuple[str, str, Histogram]]]
    newcomers: UninitializedNodes
    leaders: Callable[[], Iterator[Leader]]
    certificate_ends_at: Callable[[], float | None]


class SupervisorCollector(Collector):
    """All metrics but those of health, also those that have no value yet."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._started = time.time()

    def collect(self) -> Iterator[Family]:
        values: defaultdict[Metric, dict[tuple[str, ...], Value]] = defaultdict(dict)
        for metric, labels, value in self._readings():
            values[metric][labels] = [value]
        for worker, sums in self._counted():
            whose = {
                "worker": worker,
                "controller": controller_of(worker),
                "name": queue_of(worker),
            }
            for (metric, rest), numbers in sums.items():
                first = [whose[label] for label in metric.labels[:1] if label in whose]
                series, labels = values[metric], (*first, *rest)
                series[labels] = plus(series.get(labels, ()), numbers)
        for budget, priority, histogram in self._parts.waits():
            values[metrics.GRANT_WAITS][budget, priority] = histogram.export()
        for metric in catalogue():
            if metric is metrics.UPSTREAMS_CALLS:
                yield self._upstreams_calls(values[metrics.CALLS])
            elif metric.group != metrics.HEALTH:
                yield family(metric, values[metric] or _nothing_yet(metric))

    def _upstreams_calls(self, calls: Series) -> Family:
        series: dict[tuple[str, ...], Value] = {}
        for (_, operation, _), numbers in calls.items():
            series[operation,] = plus(series.get((operation,), ()), numbers)
        provider = re.sub(r"\W", "_", self._parts.settings.cloud_provider)
        name = metrics.UPSTREAMS_CALLS.name.replace("PROVIDER", provider)
        return family(replace(metrics.UPSTREAMS_CALLS, name=name), series)

    def _counted(self) -> Iterator[tuple[str, Sums]]:
        yield from self._parts.totals.by_worker().items()
        own: Sums = {}
        for counters in self._parts.counter_sets:
            add(own, counters.export())
        yield OWN, own

    def _readings(self) -> Iterator[Reading]:
        parts, status = self._parts, self._parts.status()
        workers = status["workers"]
        yield metrics.INFO, (status["version"], status["provider"]), 1.0
        yield metrics.UP_SECONDS, (), status["up_seconds"]
        yield metrics.MAY_ACT, (), status["leader"]["seconds_left"]
        yield from self._own_process()
        for leader in parts.leaders():
            yield metrics.MASTER, (leader.lease_name,), float(leader.is_leading())
            yield metrics.SLOW_PATH, (leader.lease_name,), leader.slow_rounds
        for facts in workers:
            yield metrics.EXITS, (facts["name"],), parts.totals.exits[facts["name"]]
        yield metrics.UNINITIALISED, (), len(parts.newcomers)
        yield metrics.OLDEST_UNINITIALISED, (), parts.newcomers.oldest(time.monotonic())
        yield from readings.of_workers(workers)
        yield from readings.of_queues(workers, status["quarantined"])
        yield from readings.of_controllers(workers, parts.settings.controllers)
        yield from readings.of_feed(status["feed"])
        yield from readings.of_budget(status["budget"])
        yield from readings.of_deletions(status["deletions"])

    def _own_process(self) -> Iterator[Reading]:
        yield metrics.CPU, (), time.process_time()
        yield metrics.MEMORY, (), resident_bytes()
        yield metrics.STARTED, (), self._started
        count, most = open_files()
        yield metrics.OPEN_FILES, (), count
        yield metrics.MOST_FILES, (), most
        if ends_at := self._parts.certificate_ends_at():
            yield metrics.CERTIFICATE_ENDS, (), ends_at


class HealthCollector(Collector):
    """What the checks said; they are looked at for this, too, so that they need no probe."""

    def __init__(self, health: Health) -> None:
        self._health = health

    def collect(self) -> Iterator[Family]:
        for endpoint in self._health.endpoints:
            self._health.report(endpoint)
        healthy: dict[tuple[str, ...], Value] = {}
        looks: dict[tuple[str, ...], Value] = {}
        for looked in self._health.looked():
            labels = (looked.name, looked.endpoint)
            healthy[labels] = [float(looked.is_well)]
            looks[(*labels, "success")] = [looked.successes]
            looks[(*labels, "error")] = [looked.errors]
        yield family(metrics.HEALTHY, healthy)
        yield family(metrics.HEALTH_LOOKS, looks)


def _nothing_yet(metric: Metric) -> Series:
    """A metric without labels begins at 0; what the labels of others will be is not known."""
    if metric.labels:
        return {}
    return {(): Histogram(metric.buckets).export() if metric.kind is Kind.HISTOGRAM else [0.0]}
