"""How long nodes wait: measured by the leader, from what it sees itself."""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from ccm.model.objects import UNINITIALIZED_TAINT
from ccm.supervisor.delivery import ProjectedStore
from ccm.supervisor.nodes import UninitializedNodes


class Cluster:
    """Nodes as the feed keeps them, and a replica that leads or not; time is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.is_leading = 1000.0, True
        monkeypatch.setattr("ccm.supervisor.nodes.time.monotonic", lambda: self.now)
        self.view = ProjectedStore("Node")
        self.uninitialized = UninitializedNodes(self.view, lambda: self.is_leading)

    def put(
        self,
        name: str,
        tainted: bool,
        uid: str = "1",
        created: str | None = None,
        ready: str = "True",
    ) -> None:
        taints = [{"key": UNINITIALIZED_TAINT, "effect": "NoSchedule"}] if tainted else []
        meta = {"uid": uid, "creationTimestamp": created}
        conditions = [{"type": "Ready", "status": ready}]
        raw = {"metadata": meta, "spec": {"taints": taints}, "status": {"conditions": conditions}}
        self.view.values[name] = (1, orjson.dumps(raw))
        self._tell(name)

    def remove(self, name: str) -> None:
        del self.view.values[name]
        self._tell(name)

    def counted(self, metric: str = "ccm_node_initialization_seconds") -> tuple[int, float]:
        """How many, and how long all together."""
        series = self.uninitialized.counters.export().get(metric, [[[], [0.0]]])
        total, *counts = series[0][1]
        return sum(counts), total

    def _tell(self, name: str) -> None:
        for listen in self.view.handlers:
            listen(name)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_from_the_first_sight_of_the_taint_to_its_end(cluster: Cluster) -> None:
    cluster.put("never", tainted=False)
    cluster.put("a", tainted=True)
    cluster.now += 1.5
    cluster.put("a", tainted=True)
    cluster.now += 0.5
    assert (len(cluster.uninitialized), cluster.uninitialized.oldest(cluster.now)) == (1, 2.0)
    cluster.put("a", tainted=False)
    cluster.put("a", tainted=False)
    assert cluster.counted() == (1, 2.0)
    assert (len(cluster.uninitialized), cluster.uninitialized.oldest(cluster.now)) == (0, 0.0)


def test_who_stands_by_counts_nothing_but_sees_them_wait(cluster: Cluster) -> None:
    cluster.is_leading = False
    cluster.put("a", tainted=True)
    assert len(cluster.uninitialized) == 1
    cluster.put("a", tainted=False)
    assert (len(cluster.uninitialized), cluster.counted()) == (0, (0, 0.0))


def test_a_node_that_goes_was_not_initialized_and_one_of_its_name_begins_again(
    cluster: Cluster,
) -> None:
    cluster.put("a", tainted=True)
    cluster.now += 50
    cluster.remove("a")
    assert len(cluster.uninitialized) == 0
    cluster.put("a", tainted=True, uid="2")
    cluster.now += 1
    cluster.put("a", tainted=True, uid="3")  # the deletion between was not seen
    cluster.now += 1
    cluster.put("a", tainted=False, uid="3")
    assert cluster.counted() == (1, 1.0)


@pytest.mark.parametrize(
    "metric", ["cloud_provider_taint_removal_delay", "initial_node_sync_delay"]
)
def test_upstreams_delays_count_from_the_creation(cluster: Cluster, metric: str) -> None:
    created = (datetime.now(UTC) - timedelta(seconds=100)).strftime("%Y-%m-%dT%H:%M:%SZ")
    cluster.put("a", tainted=True, created=created)
    cluster.put("a", tainted=False, created=created)
    count, seconds = cluster.counted(f"node_controller_{metric}_seconds")
    assert count == 1
    assert 99 <= seconds < 110


@pytest.mark.parametrize("created", [None, "yesterday", "2026-01-01T00:00:00", 7])
def test_a_creation_that_is_not_understood_is_left_out(cluster: Cluster, created: Any) -> None:
    cluster.put("a", tainted=True, created=created)
    cluster.put("a", tainted=False, created=created)
    assert cluster.counted()[0] == 1
    assert cluster.counted("node_controller_initial_node_sync_delay_seconds") == (0, 0.0)


def test_those_that_wait_longest_are_named(cluster: Cluster) -> None:
    for number in range(30):
        cluster.put(f"vm-{number}", tainted=True)
        cluster.now += 1.0
    cluster.put("vm-0", tainted=True, uid="2")
    facts = cluster.uninitialized.status(cluster.now)
    assert facts["count"] == 30
    assert facts["first"] == {f"vm-{number}": 30.0 - number for number in range(1, 21)}


def test_a_node_that_is_initialized_and_not_ready_is_counted_apart(cluster: Cluster) -> None:
    cluster.put("young", tainted=True, ready="False")
    cluster.put("silent", tainted=False, ready="Unknown")
    cluster.put("gone", tainted=False, ready="False")
    cluster.put("well", tainted=False)
    cluster.remove("gone")
    assert cluster.uninitialized.status(cluster.now)["initialized_not_ready"] == 1
    cluster.put("silent", tainted=False)
    assert cluster.uninitialized.status(cluster.now)["initialized_not_ready"] == 0
