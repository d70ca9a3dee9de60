"""Counting in a process, and adding up what processes counted: numbers only grow, and are few."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm import metrics
from ccm.counters import LONGEST, MOST, Counters, Histogram, Numbers
from ccm.supervisor.worker_counters import CounterTotals, WorkerCounters


def test_a_histogram_counts_what_is_not_above_a_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 2.1, 99.0):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 2]
    assert histogram.export() == [105.6, 2, 2, 2]


def test_the_export_is_what_a_frame_can_carry() -> None:
    counters = Counters()
    counters.count(metrics.QUEUE_ADDS)
    counters.count(metrics.RECONCILES, "failed")
    counters.observe(metrics.CLOUD_CALL_SECONDS, "describe", "ok", seconds=0.3)
    counts = [0, 0, 0, 0, 1, *[0] * 8]
    assert orjson.loads(orjson.dumps(counters.export())) == {
        "workqueue_adds_total": [[[], 1]],
        "ccm_reconciles_total": [[["failed"], 1]],
        "ccm_cloud_request_duration_seconds": [[["describe", "ok"], [0.3, *counts]]],
    }


def test_labels_that_never_end_are_counted_together() -> None:
    """A provider may name an operation after its object; memory and frames stay small."""
    counters = Counters()
    for number in range(10 * MOST):
        counters.observe(metrics.CLOUD_CALL_SECONDS, f"get node-{number}", "ok", seconds=0.1)
        counters.count(metrics.API_REQUESTS, str(number), "GET")
    exported = counters.export()
    for series in exported.values():
        assert len(series) == MOST + 1
        assert series[-1][0] == ["other", "other"]
    assert exported["rest_client_requests_total"][-1][1] == 9 * MOST


def test_a_label_is_cut() -> None:
    """A cloud may give a provider a name of megabytes; a frame would have no room for it."""
    counters = Counters()
    for end in ("a", "b"):
        counters.observe(metrics.CLOUD_CALL_SECONDS, "x" * 9_000_000 + end, "ok", seconds=0.1)
    ((labels, value),) = counters.export()["ccm_cloud_request_duration_seconds"]
    assert labels == ["x" * LONGEST, "ok"]
    assert sum(value[1:]) == 2


def test_threads_lose_no_count() -> None:
    counters = Counters()

    def work(_: int) -> None:
        for _ in range(2000):
            counters.count(metrics.QUEUE_ADDS)
            counters.observe(metrics.QUEUE_WORK_SECONDS, seconds=0.1)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    exported = counters.export()
    assert exported["workqueue_adds_total"] == [[[], 16_000]]
    assert sum(exported["workqueue_work_duration_seconds"][0][1][1:]) == 16_000


STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from("12"), st.sampled_from(["tell", "end"])),
    max_size=60,
)


@given(STEPS)
def test_no_counter_ever_goes_back_whatever_starts_and_ends(steps: list[tuple[str, ...]]) -> None:
    """Two processes of a worker at once are a hand-over; one may end before it said anything."""
    totals, running, reported, ended = WorkerCounters(), dict[str, int](), 0, Counter[str]()
    before: dict[str, CounterTotals] = {}
    for worker, start, step in steps:
        ident = f"{worker}.{start}"
        if step == "tell":
            running[ident] = running.get(ident, 0) + 1
            reported += 1
            totals.update(ident, numbers(running[ident]))
        else:
            running.pop(ident, None)
            totals.end(ident)
            ended[worker] += 1
        after = totals.by_worker()
        for name, sums in before.items():
            for key, value in sums.items():
                assert all(new >= old for new, old in zip(after[name][key], value, strict=True))
        before = after
    counted = sum(sum(sums.get((metrics.QUEUE_ADDS, ()), [])) for sums in before.values())
    assert (counted, totals.exits) == (reported, ended)


def numbers(count: int) -> dict[str, Any]:
    histogram = Histogram(metrics.QUEUE_WORK_SECONDS.buckets)
    histogram.observe(0.5, count)
    return {
        metrics.QUEUE_ADDS.name: [[[], count]],
        metrics.QUEUE_WORK_SECONDS.name: [[[], histogram.export()]],
    }


def test_a_worker_of_another_version_spoils_nothing() -> None:
    """After an upgrade on disk a worker that is started again may be newer than its supervisor."""
    totals = WorkerCounters()
    newer: Numbers = {
        "ccm_of_tomorrow_total": [[[], 1]],
        metrics.QUEUE_WORK_SECONDS.name: [[[], [1.0, 2, 3]]],
    }
    totals.update("a.1", {**numbers(5), **newer})
    assert totals.by_worker() == {"a": {(metrics.QUEUE_ADDS, ()): [5]}}


@pytest.mark.parametrize("metric", list(metrics.catalogue()), ids=lambda metric: metric.name)
def test_a_metric_is_declared_as_prometheus_wants_it(metric: metrics.Metric) -> None:
    is_counter = metric.type is metrics.MetricType.COUNTER
    assert metric.name.endswith("_total") is is_counter
    assert metric.help.endswith((".", ").")) or metric.help.endswith(": 1 or 0.")
    assert bool(metric.buckets) is (metric.type is metrics.MetricType.HISTOGRAM)
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert len(set(metric.labels)) == len(metric.labels)
    assert not set(metric.labels) & {"node", "service", "volume", "key", "object", "uid", "le"}


def test_no_name_is_declared_twice() -> None:
    names = [metric.name for metric in metrics.catalogue()]
    assert len(names) == len(set(names)) > 60
