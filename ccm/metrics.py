"""Every metric once: its name, kind, labels and meaning; `docs/metrics.md` is made from here.

Names and meanings are upstream's where it has the same thing. No label ever holds the name of an
object. What processes count (`ccm.counters`) lacks its first label: the supervisor, which adds up
the processes of one controller over all their restarts, knows whose it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Prometheus' types that we use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """A family of time series; `group` is a heading of the documentation."""

    group: str
    kind: Kind
    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def _gauge(group: str, name: str, text: str, *labels: str) -> Metric:
    return Metric(group, Kind.GAUGE, name, text, labels)


def _counter(group: str, name: str, text: str, *labels: str) -> Metric:
    return Metric(group, Kind.COUNTER, name, text, labels)


def _histogram(
    group: str, name: str, text: str, buckets: tuple[float, ...], *labels: str
) -> Metric:
    return Metric(group, Kind.HISTOGRAM, name, text, labels, buckets)


_QUICK = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LONG = (0.001, 0.01, 0.1, 1, 10, 100, 1000)
_CALL = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)
_SINCE_CREATION = (1, 4, 16, 64, 256, 1024)
_BALANCER = tuple(float(2**power) for power in range(15))

GENERAL = "General"
INFO = _gauge(GENERAL, "ccm_info", "What runs: always 1.", "version", "provider")
UP_SECONDS = _gauge(GENERAL, "ccm_up_seconds", "Time since the supervisor started.")
CPU = _counter(GENERAL, "process_cpu_seconds_total", "CPU time of the supervisor alone.")
MEMORY = _gauge(GENERAL, "process_resident_memory_bytes", "Memory of the supervisor alone.")
STARTED = _gauge(GENERAL, "process_start_time_seconds", "When the supervisor started (Unix time).")
OPEN_FILES = _gauge(GENERAL, "process_open_fds", "Open file descriptors of the supervisor.")
MOST_FILES = _gauge(GENERAL, "process_max_fds", "How many it may have open.")

LEADERSHIP = "Leadership"
MASTER = _gauge(
    LEADERSHIP,
    "leader_election_master_status",
    "Whether this replica holds the lease: 1 or 0.",
    "name",
)
SLOW_PATH = _counter(
    LEADERSHIP,
    "leader_election_slowpath_total",
    "Renewals that had to read the lease first, because somebody else had written it.",
    "name",
)
MAY_ACT = _gauge(
    LEADERSHIP, "ccm_permission_seconds", "How long the workers may still act; 0: they may not."
)
RUNNING = _gauge(
    LEADERSHIP,
    "running_managed_controllers",
    "Whether this replica runs the controller and acts: 1 or 0.",
    "name",
    "manager",
)

WORKERS = "Workers"
WORKER_STATE = _gauge(
    WORKERS, "ccm_worker_state", "1 for the state the worker is in.", "worker", "state"
)
EXITS = _counter(
    WORKERS, "ccm_worker_exits_total", "Processes of it that ended, as told or not.", "worker"
)
DEATHS = _gauge(
    WORKERS, "ccm_worker_deaths_in_a_row", "Deaths without steady work in between.", "worker"
)
SILENT = _gauge(
    WORKERS, "ccm_worker_silent_seconds", "Since the last word of its process.", "worker"
)
WORKER_CPU = _counter(
    WORKERS, "ccm_worker_cpu_seconds_total", "CPU time of its processes.", "worker"
)
WORKER_MEMORY = _gauge(
    WORKERS, "ccm_worker_resident_memory_bytes", "Memory of its process.", "worker"
)
LOOP_LAG = _gauge(
    WORKERS, "ccm_worker_loop_lag_seconds", "How late its event loop was a second ago.", "worker"
)
EVENTS_WAITING = _gauge(WORKERS, "ccm_events_waiting", "Events that are not sent yet.", "worker")

QUEUES = "Work queues"
DEPTH = _gauge(QUEUES, "workqueue_depth", "Keys that are ready to be worked on.", "name")
ADDS = _counter(QUEUES, "workqueue_adds_total", "Keys that became ready.", "name")
QUEUED = _histogram(
    QUEUES,
    "workqueue_queue_duration_seconds",
    "How long a key that was ready waited.",
    _LONG,
    "name",
)
WORKED = _histogram(
    QUEUES,
    "workqueue_work_duration_seconds",
    "How long a key was in hand.",
    _LONG,
    "name",
)
UNFINISHED = _gauge(
    QUEUES,
    "workqueue_unfinished_work_seconds",
    "How long the keys in hand have been so, all together.",
    "name",
)
LONGEST = _gauge(
    QUEUES,
    "workqueue_longest_running_processor_seconds",
    "How long the oldest key in hand has been so.",
    "name",
)
RETRIES = _counter(QUEUES, "workqueue_retries_total", "Keys put off to a later time.", "name")
LATER = _gauge(QUEUES, "ccm_keys_waiting", "Keys that wait for their time.", "controller")
UNSETTLED = _gauge(QUEUES, "ccm_keys_unsettled", "Keys with something left to do.", "controller")
QUARANTINED = _gauge(
    QUEUES, "ccm_keys_quarantined", "Keys left alone: they ended workers.", "controller"
)
RECONCILES = _counter(
    QUEUES, "ccm_reconciles_total", "Reconciles, by how they ended.", "controller", "result"
)

FEED = "Watches"
OBJECTS = _gauge(FEED, "ccm_feed_objects", "Objects known.", "kind")
FEED_AGE = _gauge(
    FEED, "ccm_feed_silent_seconds", "Since the API server's last sign of life.", "kind"
)
FEED_TROUBLE = _gauge(FEED, "ccm_feed_trouble", "Whether the watch is broken: 1 or 0.", "kind")
LISTS = _counter(FEED, "ccm_feed_lists_total", "Full lists that were begun.", "kind")
UNDECODABLE = _counter(FEED, "ccm_feed_undecodable_total", "Entries skipped as unusable.")
MAILBOX = _gauge(FEED, "ccm_mailbox_depth", "Changed objects not yet sent to a worker.", "worker")
IN_FLIGHT = _gauge(
    FEED, "ccm_mailbox_in_flight", "Frames that a worker has not acknowledged.", "worker"
)

API = "Requests to the Kubernetes API"
REQUESTS = _counter(
    API,
    "rest_client_requests_total",
    "Requests by HTTP status; <error>: no answer.",
    "controller",
    "code",
    "method",
)
REQUEST_SECONDS = _histogram(
    API,
    "rest_client_request_duration_seconds",
    "Time to the end of the answer, without the wait before sending.",
    _CALL,
    "controller",
    "verb",
)

CLOUD = "Cloud calls and their budget"
CALLS = _histogram(
    CLOUD,
    "ccm_cloud_request_duration_seconds",
    "Calls of the cloud by result; their number is the histogram's count.",
    _CALL,
    "controller",
    "operation",
    "result",
)
UPSTREAMS_CALLS = _histogram(
    CLOUD,
    "cloudprovider_PROVIDER_api_request_duration_seconds",
    "The same without controller and result, as upstream's providers name it: with the provider.",
    _CALL,
    "request",
)
GRANT_WAITS = _histogram(
    CLOUD,
    "ccm_cloud_grant_wait_seconds",
    "How long calls waited for the budget.",
    _QUICK,
    "class",
    "priority",
)
CALLS_WAITING = _gauge(CLOUD, "ccm_cloud_calls_waiting", "Calls that wait now.", "class")
OLDEST_WAIT = _gauge(
    CLOUD, "ccm_cloud_oldest_wait_seconds", "How long the first of them has waited.", "class"
)
PACE = _gauge(CLOUD, "ccm_cloud_budget_per_second", "Calls a second granted now.", "class")
FULL_PACE = _gauge(
    CLOUD, "ccm_cloud_budget_full_per_second", "Calls a second when nothing slows us.", "class"
)
TOKENS = _gauge(CLOUD, "ccm_cloud_budget_tokens", "Calls that could be granted at once.", "class")
THROTTLED = _counter(CLOUD, "ccm_cloud_throttled_total", "Answers that we call too often.", "class")

NODES = "Nodes"
INITIALISED = _histogram(
    NODES,
    "ccm_node_initialisation_seconds",
    "From when the leader first saw the uninitialized taint to when it saw it gone.",
    _QUICK,
)
TAINT_REMOVED = _histogram(
    NODES,
    "node_controller_cloud_provider_taint_removal_delay_seconds",
    "From a node's creation to the removal of its uninitialized taint.",
    _SINCE_CREATION,
)
FIRST_SYNC = _histogram(
    NODES,
    "node_controller_initial_node_sync_delay_seconds",
    "From a node's creation to the end of its initialisation: here the taint goes last.",
    _SINCE_CREATION,
)
UNINITIALISED = _gauge(NODES, "ccm_nodes_uninitialised", "Nodes with the uninitialized taint.")
OLDEST_UNINITIALISED = _gauge(
    NODES, "ccm_nodes_oldest_uninitialised_seconds", "How long we have seen the first of them so."
)

DELETIONS = "Node deletions"
PROPOSED = _counter(
    DELETIONS, "ccm_node_deletions_proposed_total", "Nodes whose machine was said to be gone."
)
PERMITTED = _counter(DELETIONS, "ccm_node_deletions_permitted_total", "Deletions permitted.")
DELETED = _counter(DELETIONS, "ccm_node_deletions_done_total", "Nodes deleted.")
NOT_UNDERSTOOD = _counter(
    DELETIONS, "ccm_node_deletions_not_understood_total", "Proposals that made no sense."
)
HELD = _gauge(DELETIONS, "ccm_node_deletions_held", "Nodes whose deletion is held back now.")
ON_HOLD = _gauge(
    DELETIONS, "ccm_node_deletions_on_hold", "Whether too many vanished at once: 1 or 0."
)
FROZEN = _gauge(DELETIONS, "ccm_node_deletions_frozen", "Whether a person stopped them: 1 or 0.")
STATE_TROUBLE = _gauge(
    DELETIONS,
    "ccm_node_deletions_state_trouble",
    "Whether the state file is of no use, so that nothing is deleted: 1 or 0.",
)
DELETIONS_LEFT = _gauge(
    DELETIONS, "ccm_node_deletions_left", "Deletions still allowed in this window."
)

ROUTES = "Routes"
ROUTE_SYNCS = _counter(
    ROUTES, "route_controller_route_sync_total", "Full comparisons of all routes."
)
ROUTES_CREATED = _counter(ROUTES, "ccm_routes_created_total", "Routes created.")
ROUTES_DELETED = _counter(ROUTES, "ccm_routes_deleted_total", "Routes deleted.")

BALANCERS = "Load balancers"
HOST_UPDATES = _counter(
    BALANCERS,
    "service_controller_loadbalancer_sync_total",
    "Host updates after changes of nodes.",
)
HOST_UPDATES_FAILED = _counter(
    BALANCERS,
    "service_controller_nodesync_error_total",
    "Host updates that failed.",
)
HOST_UPDATE_SECONDS = _histogram(
    BALANCERS,
    "service_controller_update_loadbalancer_host_latency_seconds",
    "How long one host update took.",
    _BALANCER,
)
ENSURED = _counter(
    BALANCERS, "ccm_load_balancers_ensured_total", "Balancers compared and set right."
)
BALANCERS_DELETED = _counter(BALANCERS, "ccm_load_balancers_deleted_total", "Balancers deleted.")

SERVER = "This server"
SERVED = _counter(SERVER, "ccm_https_requests_total", "Requests by HTTP status.", "path", "code")
REVIEWS = _counter(
    SERVER,
    "ccm_https_reviews_total",
    "Questions to the API server about who asks and what they may, by how they ended.",
    "kind",
    "result",
)
CERTIFICATE_ENDS = _gauge(
    SERVER,
    "ccm_https_certificate_expiration_timestamp_seconds",
    "When the certificate shown to clients that ask for no name ends (Unix time).",
)

HEALTH = "Health (at /metrics/slis)"
HEALTHY = _gauge(
    HEALTH, "kubernetes_healthcheck", "Result of the last look: 1 or 0.", "name", "type"
)
HEALTH_LOOKS = _counter(
    HEALTH, "kubernetes_healthchecks_total", "Looks, by result.", "name", "type", "status"
)


def catalogue() -> Iterator[Metric]:
    """Every metric, group by group."""
    return (value for value in globals().values() if isinstance(value, Metric))
