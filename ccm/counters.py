"""What a process counts for `/metrics`: a few numbers however long it runs, and they only grow."""

from bisect import bisect_left
from collections.abc import Mapping
from threading import Lock
from typing import Any, TypeVar, cast

from ccm.metrics import Metric

MOST = 64  # sets of labels of one metric; further ones are counted together
LONGEST = 128  # characters of a label
OTHER = "other"

LabelsT = TypeVar("LabelsT", bound=tuple[str, ...])

Numbers = dict[str, list[list[Any]]]
"""Metric name → [labels, value]; a histogram's value is [sum, count of each bucket …]."""


class Histogram:
    """How many observations fell into each bucket, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.total = bounds, 0.0
        self.counts = [0] * (len(bounds) + 1)  # the last one: above all bounds

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def export(self) -> list[float]:
        return [round(self.total, 6), *self.counts]


class Counters:
    """Counters and histograms by metric and labels. Threads may use it, too."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[tuple[str, ...], float]] = {}
        self._histograms: dict[str, dict[tuple[str, ...], Histogram]] = {}
        self._lock = Lock()

    def count(self, metric: Metric, *labels: str) -> None:
        """Raise a counter by one."""
        with self._lock:
            series = self._counters.setdefault(metric.name, {})
            labels = bounded(labels, series)
            series[labels] = series.get(labels, 0) + 1

    def observe(self, metric: Metric, *labels: str, seconds: float) -> None:
        """Put a duration into a histogram."""
        with self._lock:
            series = self._histograms.setdefault(metric.name, {})
            labels = bounded(labels, series)
            if labels not in series:
                series[labels] = Histogram(metric.buckets)
            series[labels].observe(seconds)

    def export(self) -> Numbers:
        """Everything so far, as JSON."""
        with self._lock:
            counted = {
                name: [[list(labels), value] for labels, value in series.items()]
                for name, series in self._counters.items()
            }
            observed = {
                name: [[list(labels), kept.export()] for labels, kept in series.items()]
                for name, series in self._histograms.items()
            }
        return counted | observed


def bounded(labels: LabelsT, series: Mapping[LabelsT, Any]) -> LabelsT:
    """The labels to count under: their own, cut, or `OTHER` once there are `MOST` of them."""
    if labels in series:
        return labels
    cut = cast(LabelsT, tuple(label[:LONGEST] for label in labels))
    if cut in series or len(series) < MOST:
        return cut
    return cast(LabelsT, (OTHER,) * len(labels))
