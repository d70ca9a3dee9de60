"""From what the parts of a supervisor say to what Prometheus reads."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ccm.supervisor.spending import Waits
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ccm import metrics
from ccm.counters import Counters
from ccm.decide.children import Life, WorkerState
from ccm.kube.client import Kube
from ccm.model.objects import Json
from ccm.settings import Settings
from ccm.supervisor.budget import Budget
from ccm.supervisor.child import Child, Start
from ccm.supervisor.deletions import Governor, Views, policy_of
from ccm.supervisor.delivery import ProjectedStore
from ccm.supervisor.informer import SharedInformer
from ccm.supervisor.leader import Leader
from ccm.supervisor.metrics import document
from ccm.supervisor.metrics.collector import Parts, SupervisorCollector
from ccm.supervisor.metrics.totals import Totals
from ccm.supervisor.uninitialized import UninitializedNodes

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"

Sample = tuple[str, tuple[tuple[str, str], ...]]


class Supervisor:
    """Its parts, mostly the real ones, as the collector meets them."""

    def __init__(self, directory: Path) -> None:
        self.settings = Settings(cloud_provider="simulated", controllers=("*",))
        self.totals, self.counters, self.wait = Totals(), Counters(), Waits()
        self.newcomers = UninitializedNodes(ProjectedStore("Node"), lambda: True)
        self.leader = SimpleNamespace(lease_name="ccm", is_leading=lambda: True, slow_rounds=2)
        feed = SharedInformer(cast(Kube, None), lambda *_: True)
        budget = Budget({}, lambda *_: True)
        views = Views(lambda _: None, lambda: 7)
        governor = Governor(policy_of(self.settings), directory / "state", views, lambda *_: None)
        now = time.monotonic()
        self.status: Json = {
            "version": "1.2.3",
            "provider": "simulated",
            "up_seconds": 5.0,
            "leader": {"seconds_left": 9.5},
            "workers": [],
            "quarantined": {},
            "deletions": governor.status(now),
            "feed": feed.status(now),
            "budget": budget.status(now),
        }

    def worker(self, name: str, state: WorkerState = WorkerState.RUNNING, **facts: Any) -> None:
        """A worker as `status` shows it; without facts it has no process."""
        process: Any = SimpleNamespace(pid=1)
        start = Start(f"{name}.1", process, Path("hand"), (), status=facts) if facts else None
        child = Child(name, "any", Life(state, deaths=3), 1, start)
        self.status["workers"].append(child.describe(time.monotonic()))

    def page(self) -> str:
        parts = Parts(
            settings=self.settings,
            status=lambda: self.status,
            totals=self.totals,
            counter_sets=(self.counters, self.newcomers.counters),
            waits=lambda: iter([("read", "node-init", self.wait.spread)]),
            newcomers=self.newcomers,
            leaders=lambda: iter([cast(Leader, self.leader)]),
            certificate_ends_at=lambda: 1_800_000_000.0,
        )
        registry = CollectorRegistry()
        registry.register(SupervisorCollector(parts))
        return generate_latest(registry).decode()

    def samples(self) -> dict[Sample, float]:
        families = text_string_to_metric_families(self.page())
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families
            for sample in family.samples
        }

    def value(self, metric: str, /, **labels: str) -> float | None:
        return self.samples().get((metric, tuple(sorted(labels.items()))))


@pytest.fixture
def supervisor(tmp_path: Path) -> Supervisor:
    return Supervisor(tmp_path)


def test_every_metric_is_there_from_the_start_with_its_type(supervisor: Supervisor) -> None:
    page = supervisor.page()
    for metric in metrics.catalogue():
        name = metric.name.replace("PROVIDER", "simulated")
        line = f"# TYPE {name} {metric.kind}\n"
        assert (line in page) is (metric.group != metrics.HEALTH), name


def test_what_has_no_labels_begins_at_zero(supervisor: Supervisor) -> None:
    assert supervisor.value("ccm_routes_created_total") == 0
    assert supervisor.value("ccm_node_initialisation_seconds_count") == 0
    assert supervisor.value("ccm_node_initialisation_seconds_bucket", le="+Inf") == 0


def test_buckets_are_cumulative_and_written_as_go_does(supervisor: Supervisor) -> None:
    for seconds in (0.001, 0.3, 0.3, 2.0, 1000.0):
        supervisor.wait.note(seconds, 1)
    samples = supervisor.samples()
    buckets = {
        dict(labels)["le"]: value
        for (name, labels), value in samples.items()
        if name == "ccm_cloud_grant_wait_seconds_bucket"
    }
    assert (buckets["0.005"], buckets["0.5"], buckets["1"], buckets["2.5"]) == (1, 3, 3, 4)
    assert buckets["+Inf"] == 5
    labels = {"class": "read", "priority": "node-init"}
    assert supervisor.value("ccm_cloud_grant_wait_seconds_sum", **labels) == 1002.601


def test_shards_are_one_controller_and_each_a_process_of_its_own(supervisor: Supervisor) -> None:
    for number, cpu in enumerate((1.5, 2.5)):
        counters = Counters()
        counters.count(metrics.ADDS, by=10)
        counters.count(metrics.RECONCILES, "failed")
        counters.count(metrics.DELETED)
        counters.observe(metrics.CALLS, "describe", "ok", seconds=0.2)
        numbers = {**counters.export(), metrics.WORKER_CPU.name: [[[], cpu]]}
        supervisor.totals.on_message(f"node-{number}.1", numbers)
    value = supervisor.value
    assert value("workqueue_adds_total", name="Nodes") == 20
    assert value("ccm_reconciles_total", controller="node", result="failed") == 2
    assert value("ccm_node_deletions_done_total") == 2
    assert value("ccm_worker_cpu_seconds_total", worker="node-0") == 1.5
    assert value("ccm_worker_cpu_seconds_total", worker="node-1") == 2.5
    calls = {"controller": "node", "operation": "describe", "result": "ok"}
    assert value("ccm_cloud_request_duration_seconds_count", **calls) == 2


def test_calls_are_there_under_upstreams_name_as_well(supervisor: Supervisor) -> None:
    supervisor.settings = Settings(cloud_provider="my-cloud")
    counters = Counters()
    counters.observe(metrics.CALLS, "describe", "ok", seconds=0.2)
    counters.observe(metrics.CALLS, "describe", "error", seconds=0.2)
    supervisor.totals.on_message("node-0.1", counters.export())
    supervisor.totals.on_message("service.1", counters.export())
    name = "cloudprovider_my_cloud_api_request_duration_seconds_count"
    assert supervisor.value(name, request="describe") == 4


def test_the_supervisors_own_requests_are_counted_as_its_own(supervisor: Supervisor) -> None:
    supervisor.counters.count(metrics.REQUESTS, "200", "GET", by=3)
    labels = {"controller": "supervisor", "code": "200", "method": "GET"}
    assert supervisor.value("rest_client_requests_total", **labels) == 3


def test_queues_have_upstreams_names_and_the_oldest_key_of_all_shards(
    supervisor: Supervisor,
) -> None:
    queue = {"ready": 3, "later": 2, "oldest_seconds": 5.0, "unfinished_seconds": 7.0}
    supervisor.worker("node-0", queue=queue, unsettled=4)
    supervisor.worker("node-1", queue={**queue, "oldest_seconds": 9.0}, unsettled=1)
    supervisor.worker("route", queue=queue, unsettled=0)
    supervisor.worker("service", WorkerState.BACKOFF)
    value = supervisor.value
    assert value("workqueue_depth", name="Nodes") == 6
    assert value("workqueue_depth", name="Routes") == 3
    assert value("workqueue_depth", name="service") == 0
    assert value("workqueue_longest_running_processor_seconds", name="Nodes") == 9
    assert value("workqueue_unfinished_work_seconds", name="Nodes") == 14
    assert value("ccm_keys_waiting", controller="node") == 4
    assert value("ccm_keys_unsettled", controller="node") == 5


def test_quarantine_is_counted_by_controller(supervisor: Supervisor) -> None:
    supervisor.worker("node-0", queue={})
    supervisor.worker("volume-label", queue={})
    supervisor.status["quarantined"] = {"volume_label": {"a": 1.0, "b": 2.0}}
    assert supervisor.value("ccm_keys_quarantined", controller="volume-label") == 2
    assert supervisor.value("ccm_keys_quarantined", controller="node") == 0


def test_a_worker_has_one_state_and_without_a_process_no_memory(supervisor: Supervisor) -> None:
    supervisor.worker("node-0", WorkerState.RUNNING, rss_bytes=1000, loop_lag=0.1, events_waiting=2)
    supervisor.worker("route", WorkerState.BACKOFF)
    value = supervisor.value
    assert value("ccm_worker_state", worker="node-0", state="running") == 1
    assert value("ccm_worker_state", worker="node-0", state="backoff") == 0
    assert value("ccm_worker_state", worker="route", state="backoff") == 1
    assert value("ccm_worker_resident_memory_bytes", worker="node-0") == 1000
    assert value("ccm_worker_resident_memory_bytes", worker="route") is None
    assert value("ccm_worker_deaths_in_a_row", worker="route") == 3
    assert value("ccm_worker_exits_total", worker="route") == 0


@pytest.mark.parametrize(
    ("enabled", "state", "expected"),
    [
        (("*",), WorkerState.RUNNING, {"cloud-node": 1, "cloud-node-lifecycle": 1, "route": 0}),
        (("*",), WorkerState.STANDBY, {"cloud-node": 0, "cloud-node-lifecycle": 0, "route": 0}),
        (("cloud-node-controller",), WorkerState.RUNNING, {"cloud-node": 1, "route": None}),
        (("-node-route-controller", "*"), WorkerState.RUNNING, {"cloud-node": 1, "route": None}),
    ],
)
def test_a_controller_runs_where_a_worker_of_it_may_act(
    supervisor: Supervisor,
    enabled: tuple[str, ...],
    state: WorkerState,
    expected: dict[str, float | None],
) -> None:
    supervisor.settings = Settings(cloud_provider="simulated", controllers=enabled)
    supervisor.worker("node-0", state, queue={})
    found = {
        name: supervisor.value(
            "running_managed_controllers", name=name, manager="cloud-controller-manager"
        )
        for name in expected
    }
    assert found == expected


def test_both_mailboxes_of_a_hand_over_count(supervisor: Supervisor) -> None:
    box = {"depth": 3, "in_flight": 8, "frames": 9}
    supervisor.status["feed"]["mailboxes"] = {"node-0.1": box, "node-0.2": box, "route.1": box}
    assert supervisor.value("ccm_mailbox_depth", worker="node-0") == 6
    assert supervisor.value("ccm_mailbox_in_flight", worker="route") == 8


def test_watches_and_their_trouble(supervisor: Supervisor) -> None:
    kind = {"objects": 5, "silent_seconds": 1.5, "trouble": "", "lists": 2}
    supervisor.status["feed"]["kinds"] = {"Node": kind, "Service": {**kind, "trouble": "410"}}
    assert supervisor.value("ccm_feed_trouble", kind="Node") == 0
    assert supervisor.value("ccm_feed_trouble", kind="Service") == 1
    assert supervisor.value("ccm_feed_silent_seconds", kind="Node") == 1.5
    assert supervisor.value("ccm_feed_lists_total", kind="Node") == 2


async def test_the_budget_and_who_waits_for_it(supervisor: Supervisor) -> None:
    budget = Budget({}, lambda *_: True)
    budget.declare({"read": [10.0, 5.0]})
    facts = budget.status(time.monotonic())
    ask = {"worker": "node-0", "priority": "node-init", "calls": 4, "seconds": 2.5}
    waiting = {**facts["read"], "waiting": {"node-0": 4}, "queue": [ask], "throttled": 7}
    supervisor.status["budget"] = {"read": waiting}
    values = {
        name: supervisor.value(f"ccm_cloud_{name}", **{"class": "read"})
        for name in (
            "budget_per_second",
            "budget_full_per_second",
            "budget_tokens",
            "throttled_total",
            "calls_waiting",
            "oldest_wait_seconds",
        )
    }
    assert values == {
        "budget_per_second": 10,
        "budget_full_per_second": 10,
        "budget_tokens": 5,
        "throttled_total": 7,
        "calls_waiting": 4,
        "oldest_wait_seconds": 2.5,
    }


def test_deletions_that_are_stopped(supervisor: Supervisor) -> None:
    facts = supervisor.status["deletions"]
    facts["frozen"], facts["held"], facts["trouble"] = {"why": "x"}, "too many", "disk full"
    facts["counts"] = {"proposed": 5, "held": 4, "permitted": 1, "not_understood": 2}
    value = supervisor.value
    assert value("ccm_node_deletions_frozen") == 1
    assert value("ccm_node_deletions_on_hold") == 1
    assert value("ccm_node_deletions_state_trouble") == 1
    assert value("ccm_node_deletions_held") == 4
    assert value("ccm_node_deletions_proposed_total") == 5
    assert value("ccm_node_deletions_permitted_total") == 1
    assert value("ccm_node_deletions_not_understood_total") == 2
    assert value("ccm_node_deletions_left") == facts["budget"]["left"] == 10


def test_the_own_process_is_read_without_what_a_sandbox_hides(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unit sets ProcSubset=pid: of /proc, only processes are there."""
    opened: list[str] = []
    real_open = open

    def watched(path: Any, *arguments: Any, **named: Any) -> Any:
        opened.append(str(path))
        return real_open(path, *arguments, **named)

    monkeypatch.setattr("builtins.open", watched)
    samples = supervisor.samples()
    assert [path for path in opened if not path.startswith("/proc/self/")] == []
    assert samples["process_resident_memory_bytes", ()] > 10 << 20
    assert 0 < samples["process_open_fds", ()] <= samples["process_max_fds", ()]
    assert samples["process_cpu_seconds_total", ()] > 0
    assert abs(samples["process_start_time_seconds", ()] - time.time()) < 60


def test_the_page_is_made_from_the_declarations() -> None:
    made = document.page()
    assert PAGE.read_text() == made, "run: python -m ccm.supervisor.metrics.document"
