"""The sections of the status page: one function for each, from the status to a table."""

from collections.abc import Iterator, Mapping

from ccm.decide.deletion import DELETION_RULES
from ccm.model.status import (
    BudgetStatus,
    DeletionStatus,
    IdentityStatus,
    InformerStatus,
    Status,
    UninitializedStatus,
    WorkerStatus,
)
from ccm.supervisor.deletion_state import why_blocked
from ccm.supervisor.https import status_html as html
from ccm.supervisor.https.status_html import Section, TableColumn, TableEntry, plural
from ccm.supervisor.status_metrics import controller_of_worker

WORKER_COLUMNS = (
    TableColumn("Worker", "name"),
    TableColumn("State", "state", html.state),
    TableColumn("For", "state_seconds", html.duration),
    TableColumn("Process", "processes", html.listing),
    TableColumn("Restarts", "restarts", html.count),
    TableColumn("Objects", "objects", html.count),
    TableColumn("Queue", "ready", html.count),
    TableColumn("Pending", "pending", html.count),
    TableColumn("Failing", "failing", html.count),
    TableColumn("Memory", "rss_bytes", html.mebibytes),
    TableColumn("Last heartbeat", "silent_seconds", html.ago),
)
NODE_COLUMNS = (
    TableColumn("Node", "key"),
    TableColumn("Pending for", "seconds", html.duration),
    TableColumn("Worker", "worker"),
    TableColumn("Reason", "why"),
)
BALANCER_COLUMNS = (
    TableColumn("Service", "service"),
    TableColumn("Load balancer", "state", html.state),
    TableColumn("Last read", "seconds_ago", html.ago),
    TableColumn("Ingress", "addresses", html.listing),
    TableColumn("Backends", "backends", html.count),
    TableColumn("Reason", "why"),
)
DELETION_COLUMNS = (
    TableColumn("Node", "node"),
    TableColumn("Verdict", "verdict", html.state),
    TableColumn("For at least", "seconds", html.duration),
    TableColumn("Reason", "reason"),
    TableColumn("Meaning, and what to do", "meaning"),
)
BUDGET_COLUMNS = (
    TableColumn("Class", "name"),
    TableColumn("State", "state", html.state),
    TableColumn("Calls/s now", "per_second", html.rate),
    TableColumn("Calls/s full", "full_per_second", html.rate),
    TableColumn("Tokens", "tokens", html.count),
    TableColumn("Granted", "granted", html.count),
    TableColumn("Throttled", "throttled", html.count),
    TableColumn("Waiting", "calls_waiting", html.count),
    TableColumn("Longest wait", "longest_wait", html.duration),
)
DECISION_COLUMNS = (
    TableColumn("Object", "key"),
    TableColumn("When", "seconds_ago", html.ago),
    TableColumn("Worker", "worker"),
    TableColumn("Result", "what", html.state),
    TableColumn("Reason", "why"),
)
QUARANTINE_COLUMNS = (
    TableColumn("Object", "key"),
    TableColumn("Controller", "controller"),
    TableColumn("Next retry", "seconds", html.until),
)
VOLUME_COLUMNS = (TableColumn("PersistentVolume", "key"), TableColumn("Reason", "why"))
WATCH_COLUMNS = (
    TableColumn("Kind", "name"),
    TableColumn("Objects", "objects", html.count),
    TableColumn("Last event", "silent_seconds", html.ago),
    TableColumn("Lists", "lists", html.count),
    TableColumn("Error", "last_error"),
)
IDENTITY_COLUMNS = (
    TableColumn("Service account", "name"),
    TableColumn("Token expires", "seconds_left", html.until),
    TableColumn("Error", "last_error"),
)

MEANINGS = {
    str(rule.reason): f"{rule.meaning} {rule.remedy}".replace("`", "'") for rule in DELETION_RULES
}
"""By the reason why a deletion is not permitted."""


def sections(status: Status) -> Iterator[Section]:
    """All tables, in the order in which people need them."""
    workers = status["workers"]
    yield _workers(workers)
    yield _nodes(workers, status["uninitialized_nodes"])
    yield _balancers(workers)
    yield _deletions(status["deletions"])
    yield _budget(status["budget"])
    yield _decisions(workers)
    yield _quarantine(status["quarantined"])
    yield _volumes(workers)
    yield _watches(status["informer"])
    yield _identities(status["identities"])


def _workers(workers: list[WorkerStatus]) -> Section:
    entries = [
        {
            **worker,
            "ready": worker["queue"]["ready"] if "queue" in worker else None,
            "processes": [pid for pid in (worker["pid"], worker["successor_pid"]) if pid],
        }
        for worker in workers
    ]
    caption = "One row each; a second process takes over from the first."
    return Section("workers", "Workers", caption, WORKER_COLUMNS, entries, "There is none.")


def _nodes(workers: list[WorkerStatus], uninitialized: UninitializedStatus) -> Section:
    """What the supervisor itself observes, with the reasons that workers report."""
    since = uninitialized.get("first", {})
    reported = list(_pending(workers, "node"))
    explained = {entry["key"] for entry in reported}
    others = [{"key": key, "why": "not reported yet"} for key in since if key not in explained]
    entries = sorted((*reported, *others), key=lambda entry: -since.get(entry["key"], 0.0))
    unrouted = list(_pending(workers, "route"))
    total = max(uninitialized.get("count", 0), _count(workers, "node"), len(entries))
    return Section(
        "nodes",
        "Pending nodes",
        "The longest wait first.",
        NODE_COLUMNS,
        [{"seconds": since.get(entry["key"]), **entry} for entry in (*entries, *unrouted)],
        "None waits for us.",
        total=total + _count(workers, "route"),
        notes=_counts_of_nodes(uninitialized),
    )


def _counts_of_nodes(uninitialized: UninitializedStatus) -> tuple[str, str]:
    """Two states which are often taken for one."""
    unready = plural(uninitialized.get("initialized_not_ready"), "node")
    return (
        f"Not initialized (tainted until the cloud knows them): "
        f"{plural(uninitialized.get('count'), 'node')}.",
        f"Not ready (initialized; their kubelets or network plugins report the reason): {unready}.",
    )


def _balancers(workers: list[WorkerStatus]) -> Section:
    """The load balancers that the worker reports, and the Services that are pending."""
    ours = [worker for worker in workers if _controller(worker) == "service"]
    reasons = {entry["key"]: {"why": entry["why"]} for entry in _pending(workers, "service")}
    reported = [entry for worker in ours for entry in worker.get("services", ())]
    names = {entry["service"] for entry in reported}
    pending = [{"service": key, "state": "pending"} for key in reasons if key not in names]
    entries: list[TableEntry] = [*pending, *reported]
    total = max(sum(worker.get("load_balancers", 0) for worker in ours), len(entries))
    backends = sum(worker.get("backends", 0) for worker in ours)
    return Section(
        "load_balancers",
        "Load balancers",
        f"{plural(total, 'Service')}, failing first; {plural(backends, 'eligible node')}.",
        BALANCER_COLUMNS,
        [{**entry, **reasons.get(entry["service"], {})} for entry in entries],
        "None is known.",
        total=total,
    )


def _deletions(deletions: DeletionStatus) -> Section:
    counts, budget = deletions["counts"], deletions["budget"]
    allowance = (
        f"Budget: {budget['left']:,} of {budget['limit']:,} left in"
        f" {html.duration(budget['window_seconds'])}. Since the start:"
        f" {counts['proposed']:,} proposed, {counts['permitted']:,} permitted."
    )
    candidates = deletions["candidates"]
    return Section(
        "deletions",
        "Deletions of nodes",
        "Nodes whose machine is gone, by the cloud, and why they are not deleted yet.",
        DELETION_COLUMNS,
        [{**entry, "meaning": MEANINGS.get(entry["reason"])} for entry in candidates],
        "None is known.",
        total=len(candidates) + deletions["more_candidates"],
        notes=(*why_blocked(deletions), allowance),
    )


def _budget(classes: dict[str, BudgetStatus]) -> Section:
    entries = [
        {
            **limit,
            "name": name,
            "calls_waiting": sum(limit["waiting"].values()),
            "longest_wait": max((waiting["seconds"] for waiting in limit["queue"]), default=0),
        }
        for name, limit in classes.items()
    ]
    caption = "One row a class of cloud calls; all workers share it."
    if_empty = "No worker has declared the cloud's limits yet."
    return Section("budget", "Cloud budget", caption, BUDGET_COLUMNS, entries, if_empty)


def _decisions(workers: list[WorkerStatus]) -> Section:
    decisions = [
        (entry["seconds_ago"] + worker["silent_seconds"], worker["name"], entry)
        for worker in workers
        for entry in worker.get("recent", ())
    ]
    decisions.sort(key=lambda decision: decision[0])
    return Section(
        "decisions",
        "Recent decisions",
        "What failed and what recovered, newest first; a reason that objects share is shown once.",
        DECISION_COLUMNS,
        [{**entry, "worker": name, "seconds_ago": ago} for ago, name, entry in decisions],
        "Nothing failed since the workers started.",
    )


def _quarantine(controllers: dict[str, dict[str, float]]) -> Section:
    entries = [
        {"key": key, "controller": controller.replace("_", "-"), "seconds": seconds}
        for controller, keys in controllers.items()
        for key, seconds in keys.items()
    ]
    caption = "Objects in progress each time a worker crashed: skipped, then retried."
    if_empty = "No object is in quarantine."
    return Section("quarantine", "Quarantine", caption, QUARANTINE_COLUMNS, entries, if_empty)


def _volumes(workers: list[WorkerStatus]) -> Section:
    return Section(
        "volumes",
        "Pending volumes",
        "Volumes whose zone labels are not written yet.",
        VOLUME_COLUMNS,
        list(_pending(workers, "volume-label")),
        "None is known.",
        total=_count(workers, "volume-label"),
    )


def _watches(informer: InformerStatus) -> Section:
    skipped = informer["undecodable"]
    return Section(
        "watches",
        "Watches",
        "One list and watch a kind, for all workers.",
        WATCH_COLUMNS,
        _named(informer["kinds"]),
        "Nothing is watched yet.",
        notes=(f"{plural(skipped, 'object')} skipped: see the log.",) if skipped else (),
    )


def _identities(accounts: dict[str, IdentityStatus]) -> Section:
    caption = "The service accounts that the workers use."
    if_empty = "The workers use the supervisor's identity."
    entries = _named(accounts)
    return Section("identities", "Identities", caption, IDENTITY_COLUMNS, entries, if_empty)


def _named(parts: Mapping[str, TableEntry]) -> list[TableEntry]:
    """Each entry with its name in it."""
    return [{**part, "name": name} for name, part in parts.items()]


def _pending(workers: list[WorkerStatus], controller: str) -> Iterator[dict[str, str]]:
    """Some of the objects that this controller has not reconciled, and why."""
    for worker in workers:
        if _controller(worker) == controller:
            for key, why in worker.get("reasons", {}).items():
                yield {"key": key, "worker": worker["name"], "why": why}


def _count(workers: list[WorkerStatus], controller: str) -> int:
    """How many objects this controller has not reconciled."""
    ours = (worker for worker in workers if _controller(worker) == controller)
    return sum(worker.get("pending", 0) for worker in ours)


def _controller(worker: WorkerStatus) -> str:
    return controller_of_worker(worker["name"])
