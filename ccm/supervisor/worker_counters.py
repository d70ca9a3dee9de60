"""What the processes of all workers have counted, added up; how it is shown is not decided here."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import zip_longest

from ccm.counters import Numbers
from ccm.metrics import Metric, catalogue
from ccm.supervisor.budget import worker_name

Value = list[float]
"""A single number, or a histogram's sum and the counts of its buckets."""

Series = Mapping[tuple[str, ...], Value]
"""By label values."""

CounterTotals = dict[tuple[Metric, tuple[str, ...]], Value]
"""By metric and label values without the first one, which says whose it is."""

METRICS_BY_NAME = {metric.name: metric for metric in catalogue()}


class WorkerCounters:
    """Counters of all workers over all their processes: no counter ever decreases."""

    def __init__(self) -> None:
        self._running: dict[str, Numbers] = {}
        self._ended: defaultdict[str, CounterTotals] = defaultdict(dict)
        self.exits: Counter[str] = Counter()  # by worker

    def update(self, ident: str, numbers: Numbers) -> None:
        """What this process has counted so far."""
        self._running[ident] = numbers

    def end(self, ident: str) -> None:
        """This process has exited: what it reported last is added to its worker's totals."""
        add(self._ended[worker_name(ident)], self._running.pop(ident, {}))
        self.exits[worker_name(ident)] += 1

    def by_worker(self) -> dict[str, CounterTotals]:
        """The totals of every worker that ever ran."""
        totals = {worker: dict(ended) for worker, ended in self._ended.items()}
        for ident, numbers in self._running.items():
            add(totals.setdefault(worker_name(ident), {}), numbers)
        return totals


def add(totals: CounterTotals, numbers: Numbers) -> None:
    """Add what one process counted; a worker of another version may count what we do not know."""
    for name, series in numbers.items():
        metric = METRICS_BY_NAME.get(name)
        for labels, counted in series if metric else ():
            value = counted if isinstance(counted, list) else [counted]
            if metric and len(value) == (len(metric.buckets) + 2 if metric.buckets else 1):
                key = (metric, tuple(labels))
                totals[key] = add_up(totals.get(key, ()), value)


def add_up(one: Iterable[float], other: Iterable[float]) -> Value:
    return [a + b for a, b in zip_longest(one, other, fillvalue=0)]
