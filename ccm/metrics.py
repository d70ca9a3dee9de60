"""Every metric once: name, type, labels and help. Run as a module it prints the tables of
`docs/metrics.md`.

Names and meanings are upstream's where it has the same thing. No label ever holds the name of an
object. What worker processes count (`ccm.counters`) lacks its first label: the supervisor, which
adds up the processes of one controller over all their restarts, knows whose it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby


class MetricType(StrEnum):
    """The Prometheus types that we use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    UNTYPED = "untyped"


@dataclass(frozen=True, slots=True)
class Metric:
    """A family of time series; `group` is a heading of the documentation."""

    group: str
    type: MetricType
    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def _gauge(group: str, name: str, text: str, *labels: str) -> Metric:
    return Metric(group, MetricType.GAUGE, name, text, labels)


def _counter(group: str, name: str, text: str, *labels: str) -> Metric:
    return Metric(group, MetricType.COUNTER, name, text, labels)


def _histogram(
    group: str, name: str, text: str, buckets: tuple[float, ...], *labels: str
) -> Metric:
    return Metric(group, MetricType.HISTOGRAM, name, text, labels, buckets)


# Bounds of buckets, in seconds.
_LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_WORKQUEUE = (0.001, 0.01, 0.1, 1, 10, 100, 1000)
_CALL = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)
_NODE_AGE = (1, 4, 16, 64, 256, 1024)
_MONITOR_PASS = tuple(0.001 * 2**power for power in range(15))
_HOST_UPDATE = tuple(float(2**power) for power in range(15))

GENERAL = "General"
BUILD_INFO = _gauge(GENERAL, "ccm_info", "Version and provider: always 1.", "version", "provider")
UPTIME_SECONDS = _gauge(GENERAL, "ccm_up_seconds", "Time since the supervisor started.")
PROCESS_CPU_SECONDS = _counter(GENERAL, "process_cpu_seconds_total", "CPU time of the supervisor.")
PROCESS_RESIDENT_BYTES = _gauge(
    GENERAL, "process_resident_memory_bytes", "Resident memory of the supervisor process."
)
PROCESS_START_TIME = _gauge(
    GENERAL, "process_start_time_seconds", "When the supervisor started (Unix time)."
)
PROCESS_OPEN_FDS = _gauge(GENERAL, "process_open_fds", "Open file descriptors of the supervisor.")
PROCESS_MAX_FDS = _gauge(GENERAL, "process_max_fds", "Limit of open file descriptors.")

LEADERSHIP = "Leadership"
LEADER_STATUS = _gauge(
    LEADERSHIP, "leader_election_master_status", "Whether this replica is leader: 1 or 0.", "name"
)
LEADER_SLOWPATH = _counter(
    LEADERSHIP,
    "leader_election_slowpath_total",
    "Lease renewals that had to read the Lease first, because another client had written it.",
    "name",
)
LEADERSHIP_SECONDS = _gauge(
    LEADERSHIP, "ccm_permission_seconds", "Time left as leader unless renewed; 0: not leader."
)
RUNNING_CONTROLLERS = _gauge(
    LEADERSHIP,
    "running_managed_controllers",
    "Whether the controller runs in this replica, which is leader: 1 or 0.",
    "name",
    "manager",
)

WORKERS = "Workers"
WORKER_STATE = _gauge(
    WORKERS, "ccm_worker_state", "1 for the state the worker is in.", "worker", "state"
)
WORKER_EXITS = _counter(
    WORKERS, "ccm_worker_exits_total", "Processes of the worker that ended.", "worker"
)
WORKER_CONSECUTIVE_CRASHES = _gauge(
    WORKERS, "ccm_worker_deaths_in_a_row", "Crashes without steady work in between.", "worker"
)
WORKER_SILENT_SECONDS = _gauge(
    WORKERS, "ccm_worker_silent_seconds", "Time since its last heartbeat.", "worker"
)
WORKER_CPU_SECONDS = _counter(
    WORKERS, "ccm_worker_cpu_seconds_total", "CPU time of its processes.", "worker"
)
WORKER_RESIDENT_BYTES = _gauge(
    WORKERS, "ccm_worker_resident_memory_bytes", "Resident memory of its process.", "worker"
)
WORKER_LOOP_LAG_SECONDS = _gauge(
    WORKERS, "ccm_worker_loop_lag_seconds", "Delay of its event loop a second ago.", "worker"
)
EVENTS_PENDING = _gauge(
    WORKERS, "ccm_events_waiting", "Events that are not sent to the API server yet.", "worker"
)

QUEUES = "Work queues"
QUEUE_DEPTH = _gauge(QUEUES, "workqueue_depth", "Keys that are ready to be processed.", "name")
QUEUE_ADDS = _counter(QUEUES, "workqueue_adds_total", "Keys that became ready.", "name")
QUEUE_WAIT_SECONDS = _histogram(
    QUEUES, "workqueue_queue_duration_seconds", "How long a ready key waited.", _WORKQUEUE, "name"
)
QUEUE_WORK_SECONDS = _histogram(
    QUEUES, "workqueue_work_duration_seconds", "How long processing a key took.", _WORKQUEUE, "name"
)
QUEUE_UNFINISHED_SECONDS = _gauge(
    QUEUES,
    "workqueue_unfinished_work_seconds",
    "Sum of the time for which the keys in progress have been processed.",
    "name",
)
QUEUE_LONGEST_RUNNING_SECONDS = _gauge(
    QUEUES,
    "workqueue_longest_running_processor_seconds",
    "How long the oldest key in progress has been processed.",
    "name",
)
QUEUE_RETRIES = _counter(
    QUEUES, "workqueue_retries_total", "Keys queued again for a later time.", "name"
)
KEYS_DELAYED = _gauge(QUEUES, "ccm_keys_waiting", "Keys queued for a later time.", "controller")
KEYS_PENDING = _gauge(QUEUES, "ccm_keys_pending", "Keys not reconciled yet.", "controller")
KEYS_QUARANTINED = _gauge(
    QUEUES, "ccm_keys_quarantined", "Keys in quarantine: they crashed workers.", "controller"
)
RECONCILES = _counter(
    QUEUES, "ccm_reconciles_total", "Reconciles, by result.", "controller", "result"
)

WATCHES = "Watches"
INFORMER_OBJECTS = _gauge(
    WATCHES, "ccm_informer_objects", "Objects in the store of the shared informer.", "kind"
)
WATCH_SILENT_SECONDS = _gauge(
    WATCHES, "ccm_informer_silent_seconds", "Time since the last event or bookmark.", "kind"
)
WATCH_BROKEN = _gauge(
    WATCHES, "ccm_informer_trouble", "Whether the watch is broken: 1 or 0.", "kind"
)
INFORMER_LISTS = _counter(
    WATCHES, "ccm_informer_lists_total", "Full lists that were begun.", "kind"
)
OBJECTS_UNDECODABLE = _counter(
    WATCHES, "ccm_informer_undecodable_total", "Objects skipped because they cannot be decoded."
)
DELIVERY_QUEUE_DEPTH = _gauge(
    WATCHES, "ccm_delivery_queue_depth", "Changed objects in a worker's delivery queue.", "worker"
)
DELIVERY_FRAMES_IN_FLIGHT = _gauge(
    WATCHES, "ccm_delivery_in_flight", "Frames that a worker has not acknowledged.", "worker"
)

API = "Requests to the Kubernetes API"
API_REQUESTS = _counter(
    API,
    "rest_client_requests_total",
    "Requests, by HTTP status; <error>: no response.",
    "controller",
    "code",
    "method",
)
API_REQUEST_SECONDS = _histogram(
    API,
    "rest_client_request_duration_seconds",
    "Time until the response is complete, without the wait before sending.",
    _CALL,
    "controller",
    "verb",
)

CLOUD = "Cloud calls and their budget"
CLOUD_CALL_SECONDS = _histogram(
    CLOUD,
    "ccm_cloud_request_duration_seconds",
    "Calls of the cloud's API, by result; their number is the histogram's count.",
    _CALL,
    "controller",
    "operation",
    "result",
)
CLOUD_OUTAGE = _gauge(
    CLOUD,
    "ccm_cloud_outage_seconds",
    "How long no read of the cloud has succeeded, and why it began; 0 while reads succeed.",
    "cause",
)
UPSTREAM_CALL_SECONDS = _histogram(
    CLOUD,
    "cloudprovider_PROVIDER_api_request_duration_seconds",
    "Those that succeeded, as upstream's providers name them: with the provider.",
    _CALL,
    "request",
)
UPSTREAM_CALLS_FAILED = Metric(
    CLOUD,
    MetricType.UNTYPED,
    "cloudprovider_PROVIDER_api_request_errors",
    "Those that failed. It only grows; a counter's name would end with _total.",
    ("request",),
)
UPSTREAM_CALLS_THROTTLED = _counter(
    CLOUD,
    "cloudprovider_PROVIDER_api_throttled_requests_total",
    "Those of them that the cloud throttled.",
    "operation_name",
)
GRANT_WAIT_SECONDS = _histogram(
    CLOUD,
    "ccm_cloud_grant_wait_seconds",
    "Waits of calls for a grant.",
    _LATENCY,
    "class",
    "priority",
)
CLOUD_CALLS_WAITING = _gauge(
    CLOUD, "ccm_cloud_calls_waiting", "Calls waiting for a grant.", "class"
)
CLOUD_OLDEST_WAIT_SECONDS = _gauge(
    CLOUD, "ccm_cloud_oldest_wait_seconds", "How long the oldest of them has waited.", "class"
)
BUDGET_RATE = _gauge(CLOUD, "ccm_cloud_budget_per_second", "Rate limit, in calls/s.", "class")
BUDGET_FULL_RATE = _gauge(
    CLOUD, "ccm_cloud_budget_full_per_second", "Rate limit without throttling.", "class"
)
BUDGET_TOKENS = _gauge(
    CLOUD, "ccm_cloud_budget_tokens", "Tokens in the bucket: calls granted at once.", "class"
)
CLOUD_CALLS_THROTTLED = _counter(
    CLOUD, "ccm_cloud_throttled_total", "Calls that the cloud throttled.", "class"
)

NODES = "Nodes"
NODE_INITIALIZATION_SECONDS = _histogram(
    NODES,
    "ccm_node_initialization_seconds",
    "From when the leader first saw the uninitialized taint to when it saw it removed.",
    _LATENCY,
)
TAINT_REMOVAL_DELAY_SECONDS = _histogram(
    NODES,
    "node_controller_cloud_provider_taint_removal_delay_seconds",
    "From a Node's creation to the removal of its uninitialized taint.",
    _NODE_AGE,
)
INITIAL_NODE_SYNC_DELAY_SECONDS = _histogram(
    NODES,
    "node_controller_initial_node_sync_delay_seconds",
    "From a Node's creation to the end of its initialization: here the taint goes last.",
    _NODE_AGE,
)
NODES_UNINITIALIZED = _gauge(
    NODES, "ccm_nodes_uninitialized", "Nodes with the uninitialized taint."
)
OLDEST_UNINITIALIZED_SECONDS = _gauge(
    NODES, "ccm_nodes_oldest_uninitialized_seconds", "Time since the first of them was seen."
)

MONITOR_PASS_SECONDS = _histogram(
    NODES,
    "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
    "How long one pass over the nodes that are not ready took.",
    _MONITOR_PASS,
)
MONITOR_CALLS = _counter(
    NODES,
    "cloud_node_lifecycle_controller_cloud_provider_calls_total",
    "Reads of the cloud by these passes, each about a page of nodes.",
    "operation",
    "result",
)

DELETIONS = "Node deletions"
DELETIONS_PROPOSED = _counter(
    DELETIONS, "ccm_node_deletions_proposed_total", "Nodes whose machine is gone, by the cloud."
)
DELETIONS_PERMITTED = _counter(
    DELETIONS, "ccm_node_deletions_permitted_total", "Deletions permitted by the supervisor."
)
NODES_DELETED = _counter(DELETIONS, "ccm_node_deletions_done_total", "Nodes deleted.")
DELETIONS_INVALID = _counter(
    DELETIONS, "ccm_node_deletions_not_understood_total", "Proposals that were invalid."
)
DELETIONS_HELD = _gauge(
    DELETIONS, "ccm_node_deletions_held", "Nodes whose deletion is not permitted for now."
)
DELETIONS_ON_HOLD = _gauge(
    DELETIONS, "ccm_node_deletions_on_hold", "Whether too many vanished at once: 1 or 0."
)
DELETIONS_FROZEN = _gauge(
    DELETIONS, "ccm_node_deletions_frozen", "Whether an operator froze deletions: 1 or 0."
)
DELETION_STATE_BROKEN = _gauge(
    DELETIONS, "ccm_node_deletions_state_trouble", "Whether the state file is unusable: 1 or 0."
)
DELETIONS_LEFT = _gauge(DELETIONS, "ccm_node_deletions_left", "Deletions left in this window.")

ROUTES = "Routes"
ROUTE_SYNCS = _counter(
    ROUTES,
    "route_controller_route_sync_total",
    "Comparisons of all routes with the cloud: error, changed when something has to be, or noop.",
    "outcome",
    "trigger",
)
ROUTES_CREATED = _counter(ROUTES, "ccm_routes_created_total", "Routes created.")
ROUTES_DELETED = _counter(ROUTES, "ccm_routes_deleted_total", "Routes deleted.")

BALANCERS = "Load balancers"
HOST_UPDATES = _counter(
    BALANCERS,
    "service_controller_loadbalancer_sync_total",
    "Updates of backends after changes of Nodes.",
)
HOST_UPDATES_FAILED = _counter(
    BALANCERS, "service_controller_nodesync_error_total", "Host updates that failed."
)
HOST_UPDATE_SECONDS = _histogram(
    BALANCERS,
    "service_controller_update_loadbalancer_host_latency_seconds",
    "How long one host update took.",
    _HOST_UPDATE,
)
BALANCERS_ENSURED = _counter(
    BALANCERS, "ccm_load_balancers_ensured_total", "Load balancers ensured."
)
BALANCERS_DELETED = _counter(
    BALANCERS, "ccm_load_balancers_deleted_total", "Load balancers deleted."
)

HTTPS = "This server"
HTTPS_REQUESTS = _counter(
    HTTPS, "ccm_https_requests_total", "Requests, by HTTP status.", "path", "code"
)
HTTPS_REVIEWS = _counter(
    HTTPS, "ccm_https_reviews_total", "Token and access reviews, by result.", "kind", "result"
)
CERTIFICATE_EXPIRY = _gauge(
    HTTPS,
    "ccm_https_certificate_expiration_timestamp_seconds",
    "When the default serving certificate expires (Unix time).",
)

HEALTH = "Health (at /metrics/slis)"
HEALTHCHECK_STATUS = _gauge(
    HEALTH, "kubernetes_healthcheck", "Result of the last health check: 1 or 0.", "name", "type"
)
HEALTHCHECKS = _counter(
    HEALTH, "kubernetes_healthchecks_total", "Health checks, by result.", "name", "type", "status"
)


def catalogue() -> Iterator[Metric]:
    """Every metric, group by group."""
    return (value for value in globals().values() if isinstance(value, Metric))


def tables() -> str:
    """All that stands in `docs/metrics.md` below its introduction: a table for each group."""
    parts = []
    for group, members in groupby(catalogue(), lambda metric: metric.group):
        head = ["| name | type | labels | meaning |", "|---|---|---|---|"]
        parts.append("\n".join([f"## {group}\n", *head, *map(_row, members), ""]))
    return "\n".join(parts)


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    text = metric.help.replace("<", "\\<")
    if metric.buckets:
        text += f" Buckets: {', '.join(f'{bound:g}' for bound in metric.buckets)}."
    return f"| `{metric.name}` | {metric.type} | {labels} | {text} |"


if __name__ == "__main__":
    print(tables(), end="")
