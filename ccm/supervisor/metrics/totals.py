"""What processes count, added up over all their starts, so that no counter ever goes back."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import zip_longest

from ccm.counters import Numbers
from ccm.metrics import Metric, catalogue
from ccm.supervisor.budget import worker_name

Value = list[float]
"""A counter's one number, or a histogram's sum and the counts of its buckets."""

Sums = dict[tuple[Metric, tuple[str, ...]], Value]
"""By metric and its labels without the first one, which says whose it is."""

KNOWN = {metric.name: metric for metric in catalogue()}


class Totals:
    """Takes in what a start has counted; once it has ended, what it said last counts for ever."""

    def __init__(self) -> None:
        self._live: dict[str, Numbers] = {}
        self._ended: defaultdict[str, Sums] = defaultdict(dict)
        self.exits: Counter[str] = Counter()  # of each worker

    def on_message(self, ident: str, numbers: Numbers) -> None:
        """What this start of a worker has counted so far."""
        self._live[ident] = numbers

    def end(self, ident: str) -> None:
        """This start is over."""
        add(self._ended[worker_name(ident)], self._live.pop(ident, {}))
        self.exits[worker_name(ident)] += 1

    def by_worker(self) -> dict[str, Sums]:
        """For each worker there ever was, all that it counted."""
        totals = {worker: dict(sums) for worker, sums in self._ended.items()}
        for ident, numbers in self._live.items():
            add(totals.setdefault(worker_name(ident), {}), numbers)
        return totals


def add(sums: Sums, numbers: Numbers) -> None:
    """Add what one process counted; a worker started after an upgrade may count what we do not."""
    for name, series in numbers.items():
        metric = KNOWN.get(name)
        for labels, counted in series if metric else ():
            value = counted if isinstance(counted, list) else [counted]
            if metric and len(value) == (len(metric.buckets) + 2 if metric.buckets else 1):
                key = (metric, tuple(labels))
                sums[key] = plus(sums.get(key, ()), value)


def plus(one: Iterable[float], other: Iterable[float]) -> Value:
    """The sum, part by part."""
    return [a + b for a, b in zip_longest(one, other, fillvalue=0)]
