"""The sections of the status page: one function for each, from the status to a table."""

from collections.abc import Iterator

from ccm.decide.deletion import DELETION_RULES
from ccm.model.objects import Json, mapping, number, objects, text
from ccm.supervisor.deletion_state import why_blocked
from ccm.supervisor.https import status_html as html
from ccm.supervisor.https.status_html import Section, StatusPart, TableColumn, plural
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


def sections(status: StatusPart) -> Iterator[Section]:
    """All tables, in the order in which people need them."""
    workers = objects(status.get("workers"))
    yield _workers(workers)
    yield _nodes(workers, mapping(status.get("uninitialized_nodes")))
    yield _balancers(workers)
    yield _deletions(mapping(status.get("deletions")))
    yield _budget(mapping(status.get("budget")))
    yield _decisions(workers)
    yield _quarantine(mapping(status.get("quarantined")))
    yield _volumes(workers)
    yield _watches(mapping(status.get("informer")))
    yield _identities(mapping(status.get("identities")))


def _workers(workers: list[Json]) -> Section:
    entries = [
        {
            **worker,
            "ready": mapping(worker.get("queue")).get("ready"),
            "processes": [pid for pid in (worker.get("pid"), worker.get("successor_pid")) if pid],
        }
        for worker in workers
    ]
    caption = "One row each; a second process takes over from the first."
    return Section("workers", "Workers", caption, WORKER_COLUMNS, entries, "There is none.")


def _nodes(workers: list[Json], uninitialized: StatusPart) -> Section:
    """What the supervisor itself observes, with the reasons that workers report."""
    since = mapping(uninitialized.get("first"))
    reported = list(_pending(workers, "node"))
    explained = {entry["key"] for entry in reported}
    others = [{"key": key, "why": "not reported yet"} for key in since if key not in explained]
    entries = sorted((*reported, *others), key=lambda entry: -number(since.get(entry["key"])))
    unrouted = list(_pending(workers, "route"))
    total = max(number(uninitialized.get("count")), _count(workers, "node"), len(entries))
    return Section(
        "nodes",
        "Pending nodes",
        "The longest wait first.",
        NODE_COLUMNS,
        [{"seconds": since.get(entry["key"]), **entry} for entry in (*entries, *unrouted)],
        "None waits for us.",
        total=int(total) + _count(workers, "route"),
        notes=_counts_of_nodes(uninitialized),
    )


def _counts_of_nodes(uninitialized: StatusPart) -> tuple[str, str]:
    """Two states which are often taken for one."""
    unready = plural(uninitialized.get("initialized_not_ready"), "node")
    return (
        f"Not initialized (tainted until the cloud knows them): "
        f"{plural(uninitialized.get('count'), 'node')}.",
        f"Not ready (initialized; their kubelets or network plugins report the reason): {unready}.",
    )


def _balancers(workers: list[Json]) -> Section:
    """The load balancers that the worker reports, and the Services that are pending."""
    ours = [worker for worker in workers if _controller(worker) == "service"]
    reasons = {entry["key"]: {"why": entry["why"]} for entry in _pending(workers, "service")}
    reported = [entry for worker in ours for entry in objects(worker.get("services"))]
    names = {text(entry.get("service")) for entry in reported}
    pending = [{"service": key, "state": "pending"} for key in reasons if key not in names]
    entries = [*pending, *reported]
    total = max(sum(number(worker.get("balancers")) for worker in ours), len(entries))
    backends = sum(number(worker.get("backends")) for worker in ours)
    return Section(
        "balancers",
        "Load balancers",
        f"{plural(total, 'Service')}, failing first; {plural(backends, 'eligible node')}.",
        BALANCER_COLUMNS,
        [entry | reasons.get(text(entry.get("service")), {}) for entry in entries],
        "None is known.",
        total=int(total),
    )


def _deletions(deletions: StatusPart) -> Section:
    counts, budget = mapping(deletions.get("counts")), mapping(deletions.get("budget"))
    allowance = (
        f"Budget: {html.count(budget.get('left'))} of {html.count(budget.get('limit'))} left in"
        f" {html.duration(budget.get('window_seconds'))}. Since the start:"
        f" {html.count(counts.get('proposed'))} proposed,"
        f" {html.count(counts.get('permitted'))} permitted."
    )
    candidates = objects(deletions.get("candidates"))
    return Section(
        "deletions",
        "Deletions of nodes",
        "Nodes whose machine is gone, by the cloud, and why they are not deleted yet.",
        DELETION_COLUMNS,
        [{**entry, "meaning": MEANINGS.get(text(entry.get("reason")))} for entry in candidates],
        "None is known.",
        total=len(candidates) + int(number(deletions.get("more_candidates"))),
        notes=(*why_blocked(deletions), allowance),
    )


def _budget(classes: StatusPart) -> Section:
    entries = [
        {
            **limit,
            "calls_waiting": sum(map(number, mapping(limit.get("waiting")).values())),
            "longest_wait": max(
                (number(waiting.get("seconds")) for waiting in objects(limit.get("queue"))),
                default=0,
            ),
        }
        for limit in _named(classes)
    ]
    caption = "One row a class of cloud calls; all workers share it."
    if_empty = "No worker has declared the cloud's limits yet."
    return Section("budget", "Cloud budget", caption, BUDGET_COLUMNS, entries, if_empty)


def _decisions(workers: list[Json]) -> Section:
    entries = [
        {
            **entry,
            "worker": worker.get("name"),
            "seconds_ago": number(entry.get("seconds_ago")) + number(worker.get("silent_seconds")),
        }
        for worker in workers
        for entry in objects(worker.get("recent"))
    ]
    return Section(
        "decisions",
        "Recent decisions",
        "What failed and what recovered, newest first; a reason that objects share is shown once.",
        DECISION_COLUMNS,
        sorted(entries, key=lambda entry: number(entry["seconds_ago"])),
        "Nothing failed since the workers started.",
    )


def _quarantine(controllers: StatusPart) -> Section:
    entries = [
        {"key": key, "controller": controller.replace("_", "-"), "seconds": seconds}
        for controller, keys in controllers.items()
        for key, seconds in mapping(keys).items()
    ]
    caption = "Objects in progress each time a worker crashed: skipped, then retried."
    if_empty = "No object is in quarantine."
    return Section("quarantine", "Quarantine", caption, QUARANTINE_COLUMNS, entries, if_empty)


def _volumes(workers: list[Json]) -> Section:
    return Section(
        "volumes",
        "Pending volumes",
        "Volumes whose zone labels are not written yet.",
        VOLUME_COLUMNS,
        list(_pending(workers, "volume-label")),
        "None is known.",
        total=_count(workers, "volume-label"),
    )


def _watches(informer: StatusPart) -> Section:
    skipped = number(informer.get("undecodable"))
    return Section(
        "watches",
        "Watches",
        "One list and watch a kind, for all workers.",
        WATCH_COLUMNS,
        list(_named(mapping(informer.get("kinds")))),
        "Nothing is watched yet.",
        notes=(f"{plural(skipped, 'object')} skipped: see the log.",) if skipped else (),
    )


def _identities(accounts: StatusPart) -> Section:
    caption = "The service accounts that the workers use."
    if_empty = "The workers use the supervisor's identity."
    entries = list(_named(accounts))
    return Section("identities", "Identities", caption, IDENTITY_COLUMNS, entries, if_empty)


def _named(parts: StatusPart) -> Iterator[Json]:
    """Each entry with its name in it."""
    for name, part in parts.items():
        yield {**mapping(part), "name": name}


def _pending(workers: list[Json], controller: str) -> Iterator[Json]:
    """Some of the objects that this controller has not reconciled, and why."""
    for worker in workers:
        if _controller(worker) == controller:
            for key, why in mapping(worker.get("reasons")).items():
                yield {"key": key, "worker": worker.get("name"), "why": why}


def _count(workers: list[Json], controller: str) -> int:
    """How many objects this controller has not reconciled."""
    ours = (worker for worker in workers if _controller(worker) == controller)
    return int(sum(number(worker.get("pending")) for worker in ours))


def _controller(worker: Json) -> str:
    return controller_of_worker(text(worker.get("name")))
