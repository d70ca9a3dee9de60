"""From what the parts of a supervisor say to what Prometheus reads."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from ccm import metrics
from ccm.counters import Counters
from ccm.decide.children import Life, WorkerState
from ccm.kube.client import Kube
from ccm.model.conform import conform
from ccm.model.objects import Json
from ccm.model.status import Status, WorkerReport
from ccm.settings import Settings
from ccm.supervisor.budget import Budget, WaitStats
from ccm.supervisor.child import Child, WorkerProcess
from ccm.supervisor.deletions import DeletionGovernor, policy_of
from ccm.supervisor.delivery import ProjectedStore
from ccm.supervisor.informer import SharedInformer
from ccm.supervisor.leader_election import LeaderElector
from ccm.supervisor.metrics_collector import SupervisorCollector
from ccm.supervisor.nodes import UninitializedNodes
from ccm.supervisor.outages import OutageCause
from ccm.supervisor.worker_counters import WorkerCounters
from tests.support.deadlines import timeout

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


class Supervisor:
    """Its parts, mostly the real ones, as the collector meets them."""

    def __init__(self, directory: Path) -> None:
        self.settings = Settings(cloud_provider="simulated", controllers=("*",))
        self.worker_counters, self.counters, self.wait = WorkerCounters(), Counters(), WaitStats()
        self.uninitialized = UninitializedNodes(ProjectedStore("Node"), lambda: True)
        self.leader = SimpleNamespace(lease_name="ccm", is_leading=lambda: True, slow_paths=2)
        feed = SharedInformer(cast(Kube, None), lambda *_: True)
        budget = Budget({}, lambda *_: True, lambda _: True)
        nodes = SimpleNamespace(get=lambda _: None, count=lambda: 7)
        policy = policy_of(self.settings)
        governor = DeletionGovernor(policy, directory / "state", nodes, lambda *_: None)
        now, self.outage = time.monotonic(), OutageCause()
        self.status: Json = {
            "version": "1.2.3",
            "provider": "simulated",
            "up_seconds": 5.0,
            "leader": {"seconds_left": 9.5},
            "workers": [],
            "quarantined": {},
            "deletions": governor.status(now),
            "informer": feed.status(now),
            "budget": budget.status(now),
        }

    def worker(self, name: str, state: WorkerState = WorkerState.RUNNING, **facts: Any) -> None:
        """A worker as `status` shows it; without facts it has no process."""
        process: Any = SimpleNamespace(pid=1)
        report = conform(WorkerReport, facts)
        start = (
            WorkerProcess(f"{name}.1", process, Path("hand"), (), report=report) if report else None
        )
        child = Child(name, "any", Life(state, deaths=3), 1, start)
        self.status["workers"].append(child.describe(time.monotonic()))

    def page(self) -> str:
        collector = SupervisorCollector(
            settings=self.settings,
            status=lambda: conform(Status, self.status),
            worker_counters=self.worker_counters,
            own_counters=(self.counters, self.uninitialized.counters),
            grant_waits=lambda: iter([("read", "node-init", self.wait.histogram)]),
            uninitialized=self.uninitialized,
            leaders=lambda: iter([cast(LeaderElector, self.leader)]),
            certificate_expiry=lambda: 1_800_000_000.0,
            outage=self.outage,
        )
        registry = CollectorRegistry()
        registry.register(collector)
        return generate_latest(registry).decode()

    def lines(self) -> set[str]:
        return {*self.page().splitlines()}


@pytest.fixture
def supervisor(tmp_path: Path) -> Supervisor:
    return Supervisor(tmp_path)


def test_every_metric_is_there_from_the_start_with_its_type(supervisor: Supervisor) -> None:
    page = supervisor.page()
    for metric in metrics.catalogue():
        name = metric.name.replace("PROVIDER", "simulated")
        line = f"# TYPE {name} {metric.type}\n"
        assert (line in page) is (metric.group != metrics.HEALTH), name
    assert "\nccm_routes_created_total 0.0\n" in page
    assert '\nccm_node_initialization_seconds_bucket{le="+Inf"} 0.0\n' in page


def test_an_outage_is_one_series_whatever_the_cloud_answers_each_time(
    supervisor: Supervisor,
) -> None:
    """The alert waits for a minute of one series, and errors carry the ID of their request."""
    name = "ccm_cloud_outage_seconds"
    for seconds in (70, 100):
        why = f"500 broken (Request-ID: req-{seconds})"
        supervisor.status["cloud_outage"] = {"why": why, "seconds": seconds}
        assert (
            f'{name}{{cause="500 broken (Request-ID: req-70)"}} {seconds}.0' in supervisor.lines()
        )
    supervisor.status["cloud_outage"] = {}
    assert f'{name}{{cause=""}} 0.0' in supervisor.lines()
    supervisor.status["cloud_outage"] = {"why": "denied", "seconds": 60}
    assert f'{name}{{cause="denied"}} 60.0' in supervisor.lines()


def test_buckets_are_cumulative_and_written_as_go_does(supervisor: Supervisor) -> None:
    for seconds in (0.001, 0.3, 0.3, 2.0, 1000.0):
        supervisor.wait.add(seconds)
    counts = {"0.005": 1, "0.5": 3, "1": 3, "2.5": 4, "+Inf": 5}
    name = "ccm_cloud_grant_wait_seconds"
    lines = supervisor.lines()
    assert f'{name}_sum{{class="read",priority="node-init"}} 1002.601' in lines
    for le, count in counts.items():
        labels = f'class="read",le="{le}",priority="node-init"'
        assert f"{name}_bucket{{{labels}}} {count}.0" in lines


def test_shards_are_one_controller_and_each_a_worker_of_its_own(supervisor: Supervisor) -> None:
    for number, cpu in enumerate((1.5, 2.5)):
        counters = Counters()
        counters.count(metrics.QUEUE_ADDS)
        counters.count(metrics.RECONCILES, "failed")
        counters.count(metrics.NODES_DELETED)
        counters.observe(metrics.CLOUD_CALL_SECONDS, "describe", "ok", seconds=0.2)
        numbers = {**counters.export(), metrics.WORKER_CPU_SECONDS.name: [[[], cpu]]}
        supervisor.worker_counters.update(f"node-{number}.1", numbers)
    calls = 'controller="node",operation="describe",result="ok"'
    assert supervisor.lines() >= {
        'workqueue_adds_total{name="Nodes"} 2.0',
        'ccm_reconciles_total{controller="node",result="failed"} 2.0',
        "ccm_node_deletions_done_total 2.0",
        'ccm_worker_cpu_seconds_total{worker="node-0"} 1.5',
        'ccm_worker_cpu_seconds_total{worker="node-1"} 2.5',
        f"ccm_cloud_request_duration_seconds_count{{{calls}}} 2.0",
    }


def test_cloud_calls_are_there_under_upstreams_names_as_well(supervisor: Supervisor) -> None:
    supervisor.settings = Settings(cloud_provider="my-cloud")
    counters = Counters()
    for result in ("ok", "error", "throttled", "throttled"):
        counters.observe(metrics.CLOUD_CALL_SECONDS, "describe", result, seconds=0.2)
    supervisor.worker_counters.update("node-0.1", counters.export())
    supervisor.worker_counters.update("service.1", counters.export())
    name = "cloudprovider_my_cloud_api"
    assert supervisor.lines() >= {
        f'{name}_request_duration_seconds_count{{request="describe"}} 2.0',
        f'{name}_request_errors{{request="describe"}} 6.0',
        f'{name}_throttled_requests_total{{operation_name="describe"}} 4.0',
    }


def test_the_supervisors_own_requests_are_counted_as_its_own(supervisor: Supervisor) -> None:
    supervisor.counters.count(metrics.API_REQUESTS, "200", "GET")
    labels = 'code="200",controller="supervisor",method="GET"'
    assert f"rest_client_requests_total{{{labels}}} 1.0" in supervisor.lines()


def test_queues_have_upstreams_names_and_the_oldest_key_of_all_shards(
    supervisor: Supervisor,
) -> None:
    queue = {"ready": 3, "later": 2, "oldest_seconds": 5.0, "unfinished_seconds": 7.0}
    supervisor.worker("node-0", queue=queue, pending=4)
    supervisor.worker("node-1", queue={**queue, "oldest_seconds": 9.0}, pending=1)
    supervisor.worker("route", queue=queue, pending=0)
    supervisor.worker("service", WorkerState.BACKOFF)
    assert supervisor.lines() >= {
        'workqueue_depth{name="Nodes"} 6.0',
        'workqueue_depth{name="Routes"} 3.0',
        'workqueue_depth{name="service"} 0.0',
        'workqueue_longest_running_processor_seconds{name="Nodes"} 9.0',
        'workqueue_unfinished_work_seconds{name="Nodes"} 14.0',
        'ccm_keys_waiting{controller="node"} 4.0',
        'ccm_keys_pending{controller="node"} 5.0',
    }


def test_quarantine_is_counted_by_controller(supervisor: Supervisor) -> None:
    supervisor.worker("node-0", queue={})
    supervisor.worker("volume-label", queue={})
    supervisor.status["quarantined"] = {"volume_label": {"a": 1.0, "b": 2.0}}
    assert supervisor.lines() >= {
        'ccm_keys_quarantined{controller="volume-label"} 2.0',
        'ccm_keys_quarantined{controller="node"} 0.0',
    }


def test_a_worker_has_one_state_and_without_a_process_no_memory(supervisor: Supervisor) -> None:
    supervisor.worker("node-0", WorkerState.RUNNING, rss_bytes=1000, loop_lag=0.1, events_waiting=2)
    supervisor.worker("route", WorkerState.BACKOFF)
    assert supervisor.lines() >= {
        'ccm_worker_state{state="running",worker="node-0"} 1.0',
        'ccm_worker_state{state="backoff",worker="node-0"} 0.0',
        'ccm_worker_state{state="backoff",worker="route"} 1.0',
        'ccm_worker_resident_memory_bytes{worker="node-0"} 1000.0',
        'ccm_worker_deaths_in_a_row{worker="route"} 3.0',
        'ccm_worker_exits_total{worker="route"} 0.0',
    }
    assert 'ccm_worker_resident_memory_bytes{worker="route"}' not in supervisor.page()


@pytest.mark.parametrize(
    ("enabled", "state", "expected"),
    [
        (("*",), WorkerState.RUNNING, {"cloud-node": 1, "cloud-node-lifecycle": 1, "route": 0}),
        (("*",), WorkerState.STANDBY, {"cloud-node": 0, "cloud-node-lifecycle": 0, "route": 0}),
        (("cloud-node-controller",), WorkerState.RUNNING, {"cloud-node": 1, "route": None}),
        (("-node-route-controller", "*"), WorkerState.RUNNING, {"cloud-node": 1, "route": None}),
        (("*", "node-labels"), WorkerState.RUNNING, {"cloud-node": 1, "node-labels": 0}),
        (("*", "-tagging"), WorkerState.RUNNING, {"cloud-node": 1, "tagging": None}),
    ],
)
def test_a_controller_runs_where_a_worker_of_it_runs(
    supervisor: Supervisor,
    enabled: tuple[str, ...],
    state: WorkerState,
    expected: dict[str, float | None],
) -> None:
    supervisor.settings = Settings(cloud_provider="simulated", controllers=enabled)
    supervisor.worker("node-0", state, queue={})
    served = dict(line.rsplit(" ", 1) for line in supervisor.lines() if line[0] != "#")
    manager = 'manager="cloud-controller-manager"'
    assert expected == {
        name: float(value) if (value := served.get(series)) else None
        for name in expected
        for series in [f'running_managed_controllers{{{manager},name="{name}"}}']
    }


QUEUES = {key: {"depth": 3, "in_flight": 8} for key in ("node-0.1", "node-0.2", "route.1")}
WATCH = {"objects": 5, "silent_seconds": 1.5, "last_error": "", "lists": 2}


def test_watches_their_errors_and_both_delivery_queues_of_a_hand_over(
    supervisor: Supervisor,
) -> None:
    kinds = {"Node": WATCH, "Service": {**WATCH, "last_error": "410"}}
    supervisor.status["informer"] |= {"kinds": kinds, "delivery_queues": QUEUES}
    assert supervisor.lines() >= {
        'ccm_informer_trouble{kind="Node"} 0.0',
        'ccm_informer_trouble{kind="Service"} 1.0',
        'ccm_informer_silent_seconds{kind="Node"} 1.5',
        'ccm_informer_lists_total{kind="Node"} 2.0',
        'ccm_delivery_queue_depth{worker="node-0"} 6.0',
        'ccm_delivery_in_flight{worker="route"} 8.0',
    }


async def test_the_budget_and_who_waits_for_it(supervisor: Supervisor) -> None:
    budget = Budget({}, lambda *_: True, lambda _: True)
    budget.declare({"read": [10.0, 5.0]})
    facts = budget.status(time.monotonic())
    ask = {"worker": "node-0", "priority": "node-init", "calls": 4, "seconds": 2.5}
    waiting = {**facts["read"], "waiting": {"node-0": 4}, "queue": [ask], "throttled": 7}
    supervisor.status["budget"] = {"read": waiting}
    assert supervisor.lines() >= {
        'ccm_cloud_budget_per_second{class="read"} 10.0',
        'ccm_cloud_budget_full_per_second{class="read"} 10.0',
        'ccm_cloud_budget_tokens{class="read"} 5.0',
        'ccm_cloud_throttled_total{class="read"} 7.0',
        'ccm_cloud_calls_waiting{class="read"} 4.0',
        'ccm_cloud_oldest_wait_seconds{class="read"} 2.5',
    }


def test_deletions_that_are_blocked(supervisor: Supervisor) -> None:
    facts = supervisor.status["deletions"]
    facts["frozen"], facts["held"], facts["last_error"] = {"why": "x"}, "too many", "disk full"
    facts["counts"] = {"proposed": 5, "held": 4, "permitted": 1, "not_understood": 2}
    values = {"frozen": 1, "on_hold": 1, "state_trouble": 1, "held": 4, "left": 10}
    totals = {"proposed_total": 5, "permitted_total": 1, "not_understood_total": 2}
    assert facts["budget"]["left"] == 10
    assert supervisor.lines() >= {
        f"ccm_node_deletions_{name} {value}.0" for name, value in (values | totals).items()
    }


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
    lines = [line.split() for line in supervisor.lines() if line.startswith("process_")]
    values = {name: float(value) for name, value in lines}
    assert [path for path in opened if not path.startswith("/proc/self/")] == []
    assert values["process_resident_memory_bytes"] > 10 << 20
    assert 0 < values["process_open_fds"] <= values["process_max_fds"]
    assert values["process_cpu_seconds_total"] > 0
    assert 0 <= time.time() - values["process_start_time_seconds"] < timeout()


def test_the_tables_of_the_page_are_made_from_the_declarations() -> None:
    _, begin, rest = PAGE.read_text().partition("## ")
    assert begin + rest == metrics.tables(), "run: make docs"
