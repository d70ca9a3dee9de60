"""Values of metrics as the families that prometheus-client writes out."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import (
    Metric as Family,
)

from ccm.metrics import Kind, Metric

Series = Mapping[tuple[str, ...], list[float]]
"""Values of the labels → one number, or a histogram's sum and the counts of its buckets."""


def family(metric: Metric, series: Series) -> Family:
    """Everything of one metric."""
    match metric.kind:
        case Kind.GAUGE:
            gauge = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
            for labels, value in series.items():
                gauge.add_metric(labels, value[0])
            return gauge
        case Kind.COUNTER:
            counter = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
            for labels, value in series.items():
                counter.add_metric(labels, value[0])
            return counter
        case Kind.HISTOGRAM:
            histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
            for labels, (total, *counts) in series.items():
                histogram.add_metric(labels, list(_buckets(metric, counts)), total)
            return histogram


def _buckets(metric: Metric, counts: Iterable[float]) -> Iterator[tuple[str, float]]:
    """Prometheus' buckets contain those below them."""
    bounds = (*(f"{bound:g}" for bound in metric.buckets), "+Inf")
    return zip(bounds, accumulate(counts), strict=True)
