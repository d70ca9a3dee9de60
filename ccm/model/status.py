"""The status, typed: who writes a key of it and who reads one agree here, wherever they run."""

from typing import NotRequired, TypedDict

STATUS_SCHEMA = "status/v1"
"""Name and version: within a version keys are only ever added (docs/output.md)."""


class CloudOutage(TypedDict, total=False):
    """Since when no read of the cloud succeeds, and why; empty while they do."""

    why: str
    seconds: float


class PendingObjects(TypedDict):
    """Objects of one worker that are pending for one reason; `names` are the first of them."""

    why: str
    is_failure: bool
    seconds: float
    count: int
    names: list[str]


class RecentDecision(TypedDict):
    """A reconcile that failed or recovered."""

    key: str
    what: str
    why: str
    seconds_ago: float


class QueueStatus(TypedDict):
    """Keys of one worker: to execute now, parked until an answer comes, and due later."""

    ready: int
    parked: int
    later: int
    next_seconds: float | None
    oldest_seconds: float
    unfinished_seconds: float


class BalancerStatus(TypedDict):
    """The load balancer of one Service."""

    service: str
    state: str
    seconds_ago: float | None
    backends: int
    addresses: list[str]
    why: str


class WorkerReport(TypedDict, total=False):
    """What a worker reports with each heartbeat.

    The last five are its controller's; what else that reports stays in it.
    """

    queue: QueueStatus
    done: int
    pending: int
    failing: int
    reasons: dict[str, str]
    pending_groups: list[PendingObjects]
    recent: list[RecentDecision]
    loop_lag: float
    tasks: int
    cpu_seconds: float
    rss_bytes: int
    threads: int
    open_files: int
    open_files_limit: int
    kube_writes: int
    events_waiting: int
    cloud_outage: CloudOutage
    cloud_calls: dict[str, int]
    objects: int
    backends: int
    load_balancers: int
    services: list[BalancerStatus]
    refresh_passes: int


class WorkerStatus(WorkerReport):
    """What the supervisor knows of a worker, with the report of its process, if it has one."""

    name: str
    state: str
    state_seconds: float
    pid: int | None
    restarts: int
    deaths_in_a_row: int
    successor_pid: int | None
    silent_seconds: float
    faults: list[str]
    grew: str


class Problem(TypedDict):
    """A cause in a sentence, what follows from it, what to type, and where to read on."""

    severity: str
    sentence: str
    symptoms: list[str]
    explain: list[str]
    page: str


class MigrationStatus(TypedDict):
    """Of a leader migration."""

    lease: str
    is_leader: bool


class LeaseHolder(TypedDict):
    """Who held the Lease, and since when; `transitions` counts the holders before."""

    identity: str
    since: str
    transitions: int


class LeaderStatus(TypedDict):
    """Whether this replica leads, for how long it may still act, and who led since it started."""

    identity: str
    is_leader: bool
    seconds_left: float
    decision: str
    history: list[LeaseHolder]
    migration: NotRequired[MigrationStatus]


class FreezeStatus(TypedDict):
    """Who stopped all deletions, when and why."""

    why: str
    by: str
    at: str


class DeletionCounts(TypedDict):
    """Since the start; `held` is now."""

    proposed: int
    held: int
    permitted: int
    not_understood: int


class SpentPermit(TypedDict):
    """A Node whose deletion was permitted within the window."""

    node: str
    seconds_ago: float
    times: int


class DeletionBudget(TypedDict):
    """How many Nodes may be deleted within the window."""

    limit: int
    left: int
    window_seconds: float
    spent: list[SpentPermit]


class DeletionVerdict(TypedDict):
    """Why a Node is not deleted yet; `meaning` and `remedy` are for `explain`."""

    verdict: str
    reason: str
    seconds: NotRequired[float]
    meaning: NotRequired[str]
    remedy: NotRequired[str]


class DeletionCandidate(DeletionVerdict):
    """A Node that vanished from the cloud and still exists."""

    node: str


class DeletionStatus(TypedDict):
    """Whether Nodes may be deleted, and what prevents it."""

    frozen: FreezeStatus | None
    last_error: str
    held: str
    held_seconds: float
    counts: DeletionCounts
    budget: DeletionBudget
    vanished: int
    candidates: list[DeletionCandidate]
    more_candidates: int
    standby: NotRequired[str]


class WatchStatus(TypedDict):
    """Seconds since a sign of life, and since any event, failures included."""

    objects: int
    silent_seconds: float
    seconds_since_event: float
    last_error: str
    lists: int


class DeliveryStatus(TypedDict):
    """The delivery queue of one worker process."""

    depth: int
    in_flight: int
    frames: int


class InformerStatus(TypedDict):
    """The watches by kind, and the delivery queues by process."""

    kinds: dict[str, WatchStatus]
    undecodable: int
    delivery_queues: dict[str, DeliveryStatus]


class WaitStatus(TypedDict):
    """How long calls of one priority waited, in seconds."""

    calls: int
    seconds: float
    p50: float
    p99: float
    longest: float


class WaitingCalls(TypedDict):
    """Calls of one worker and priority that wait; `seconds` is the longest of the waits."""

    worker: str
    priority: str
    calls: int
    seconds: float


class BucketStatus(TypedDict):
    """The token bucket of a class of cloud calls; an unknown class has only the first three."""

    state: str
    per_second: float
    full_per_second: float
    burst: NotRequired[float]
    full_burst: NotRequired[float]
    tokens: NotRequired[float]
    open_seconds: NotRequired[float]
    episodes: NotRequired[int]
    last_episode_seconds: NotRequired[float | None]


class BudgetStatus(BucketStatus):
    """A class of cloud calls: its bucket, who got tokens, who waits."""

    granted: int
    granted_by_priority: dict[str, int]
    granted_by_worker: dict[str, int]
    throttled: int
    waits: dict[str, WaitStatus]
    waiting: dict[str, int]
    queue: list[WaitingCalls]


class IdentityStatus(TypedDict):
    """The token of a service account."""

    seconds_left: float
    last_error: str


class UninitializedStatus(TypedDict, total=False):
    """Nodes that wait for us, and those that wait for others; empty where no one counts."""

    count: int
    first: dict[str, float]
    initialized_not_ready: int


class Status(TypedDict):
    """What `ccm-supervisor status` shows; `quarantined` has seconds by controller and key."""

    schema: str
    problems: list[Problem]
    cloud_outage: CloudOutage
    version: str
    provider: str
    up_seconds: float
    tasks: int
    leader: LeaderStatus
    workers: list[WorkerStatus]
    quarantined: dict[str, dict[str, float]]
    deletions: DeletionStatus
    informer: InformerStatus
    budget: dict[str, BudgetStatus]
    identities: dict[str, IdentityStatus]
    uninitialized_nodes: UninitializedStatus


class PageStatus(Status):
    """What the status page shows."""

    cluster: str
    docs_url: str
    failing_checks: dict[str, str]


class WorkerExplanation(TypedDict):
    """What one worker knows of an object; without an answer only the first ones."""

    worker: str
    state: str
    quarantined: NotRequired[str]
    decided: NotRequired[str]
    exists: NotRequired[bool]
    decided_seconds_ago: NotRequired[float | None]
    in_flight: NotRequired[bool]
    failures: NotRequired[int]
    next_try_seconds: NotRequired[float | None]
    details: NotRequired[dict[str, str]]


class Explanation(TypedDict):
    """What `ccm-supervisor explain` shows."""

    kind: str
    name: str
    standby: str
    workers: list[WorkerExplanation]
    deletion: NotRequired[DeletionVerdict]
