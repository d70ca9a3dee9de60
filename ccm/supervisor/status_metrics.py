"""From the status to samples of metrics: pure, one function for each part of the status."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from ccm import metrics
from ccm.controllers import ALIASES, BY_WORKER, enabled_provided, is_enabled
from ccm.decide.children import WorkerState
from ccm.metrics import Metric
from ccm.model.conform import conform
from ccm.model.status import (
    BudgetStatus,
    DeletionStatus,
    InformerStatus,
    QueueStatus,
    Status,
    WorkerStatus,
)
from ccm.supervisor.budget import worker_name

NO_QUEUE = conform(QueueStatus, {})  # of a worker without a process

Sample = tuple[Metric, tuple[str, ...], float]
"""A metric, its label values, and its value."""


def controller_of_worker(worker: str) -> str:
    """The controller that runs in a worker; all node workers are shards of one."""
    return "node" if worker.rstrip("0123456789") == "node-" else worker


def queue_of_worker(worker: str) -> str:
    """What upstream calls the work queue of this worker."""
    ours = BY_WORKER.get(controller := controller_of_worker(worker))
    return (ours and ours.upstream_queue) or controller


def from_status(status: Status, enabled: tuple[str, ...]) -> Iterator[Sample]:
    """All samples of a status; `enabled` is `--controllers`."""
    yield metrics.BUILD_INFO, (status["version"], status["provider"]), 1.0
    yield metrics.UPTIME_SECONDS, (), status["up_seconds"]
    yield metrics.LEADERSHIP_SECONDS, (), status["leader"]["seconds_left"]
    yield from _workers(status["workers"])
    yield from _work_queues(status["workers"], status["quarantined"])
    yield from _controllers(status["workers"], enabled)
    yield from _watches(status["informer"])
    yield from _budget(status["budget"])
    yield from _deletions(status["deletions"])


def _workers(workers: list[WorkerStatus]) -> Iterator[Sample]:
    """A worker without a process lacks what a process reports."""
    for worker in workers:
        labels = (worker["name"],)
        for state in WorkerState:
            yield metrics.WORKER_STATE, (*labels, state), float(state == worker["state"])
        yield metrics.WORKER_CONSECUTIVE_CRASHES, labels, worker["deaths_in_a_row"]
        yield metrics.WORKER_SILENT_SECONDS, labels, worker["silent_seconds"]
        if "rss_bytes" in worker:
            yield metrics.WORKER_RESIDENT_BYTES, labels, worker["rss_bytes"]
        if "loop_lag" in worker:
            yield metrics.WORKER_LOOP_LAG_SECONDS, labels, worker["loop_lag"]
        if "events_waiting" in worker:
            yield metrics.EVENTS_PENDING, labels, worker["events_waiting"]


def _work_queues(
    workers: list[WorkerStatus], quarantined: dict[str, dict[str, float]]
) -> Iterator[Sample]:
    """By controller: the sum over its workers, of ages the maximum."""
    sums: defaultdict[tuple[Metric, str], float] = defaultdict(float)
    longest: dict[str, float] = {}
    for worker in workers:
        name, controller = queue_of_worker(worker["name"]), controller_of_worker(worker["name"])
        queue = worker.get("queue") or NO_QUEUE
        sums[metrics.QUEUE_DEPTH, name] += queue["ready"]
        sums[metrics.QUEUE_UNFINISHED_SECONDS, name] += queue["unfinished_seconds"]
        sums[metrics.KEYS_DELAYED, controller] += queue["later"]
        sums[metrics.KEYS_PENDING, controller] += worker.get("pending", 0)
        sums[metrics.KEYS_QUARANTINED, controller] += 0
        longest[name] = max(longest.get(name, 0.0), queue["oldest_seconds"])
    for controller, keys in quarantined.items():
        sums[metrics.KEYS_QUARANTINED, controller.replace("_", "-")] += len(keys)
    yield from ((metric, (label,), value) for (metric, label), value in sums.items())
    yield from (
        (metrics.QUEUE_LONGEST_RUNNING_SECONDS, (name,), seconds)
        for name, seconds in longest.items()
    )


def _controllers(workers: list[WorkerStatus], enabled: tuple[str, ...]) -> Iterator[Sample]:
    """Which of the enabled controllers run here while leader, by upstream's names."""
    running = [worker["name"] for worker in workers if worker["state"] == WorkerState.RUNNING]
    controllers = {*map(controller_of_worker, running)}
    ours = [alias for alias, controller in ALIASES.items() if is_enabled(controller, enabled)]
    for name in (*ours, *enabled_provided(enabled)):
        runs_in = "node" if name in BY_WORKER["node"].aliases else name
        labels = (name, "cloud-controller-manager")
        yield metrics.RUNNING_CONTROLLERS, labels, float(runs_in in controllers)


def _watches(informer: InformerStatus) -> Iterator[Sample]:
    for kind, watch in informer["kinds"].items():
        yield metrics.INFORMER_OBJECTS, (kind,), watch["objects"]
        yield metrics.WATCH_SILENT_SECONDS, (kind,), watch["silent_seconds"]
        yield metrics.WATCH_BROKEN, (kind,), float(bool(watch["last_error"]))
        yield metrics.INFORMER_LISTS, (kind,), watch["lists"]
    yield metrics.OBJECTS_UNDECODABLE, (), informer["undecodable"]
    queues: Counter[tuple[Metric, str]] = Counter()
    for ident, queue in informer["delivery_queues"].items():  # two of one worker during a hand-over
        queues[metrics.DELIVERY_QUEUE_DEPTH, worker_name(ident)] += queue["depth"]
        queues[metrics.DELIVERY_FRAMES_IN_FLIGHT, worker_name(ident)] += queue["in_flight"]
    yield from ((metric, (worker,), value) for (metric, worker), value in queues.items())


def _budget(budget: dict[str, BudgetStatus]) -> Iterator[Sample]:
    for name, limit in budget.items():
        yield metrics.BUDGET_RATE, (name,), limit["per_second"]
        yield metrics.BUDGET_FULL_RATE, (name,), limit["full_per_second"]
        yield metrics.BUDGET_TOKENS, (name,), limit.get("tokens", 0.0)
        yield metrics.CLOUD_CALLS_THROTTLED, (name,), limit["throttled"]
        yield metrics.CLOUD_CALLS_WAITING, (name,), sum(limit["waiting"].values())
        ages = (waiting["seconds"] for waiting in limit["queue"])
        yield metrics.CLOUD_OLDEST_WAIT_SECONDS, (name,), max(ages, default=0.0)


def _deletions(deletions: DeletionStatus) -> Iterator[Sample]:
    counts = deletions["counts"]
    yield metrics.DELETIONS_PROPOSED, (), counts["proposed"]
    yield metrics.DELETIONS_PERMITTED, (), counts["permitted"]
    yield metrics.DELETIONS_INVALID, (), counts["not_understood"]
    yield metrics.DELETIONS_HELD, (), counts["held"]
    yield metrics.DELETIONS_ON_HOLD, (), float(bool(deletions["held"]))
    yield metrics.DELETIONS_FROZEN, (), float(deletions["frozen"] is not None)
    yield metrics.DELETION_STATE_BROKEN, (), float(bool(deletions["last_error"]))
    yield metrics.DELETIONS_LEFT, (), deletions["budget"]["left"]
