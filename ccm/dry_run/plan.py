"""The plan of `ccm-supervisor plan`: the real controllers at work on a copy, until they are idle.

They run in this process, each with the runner of a worker. Their writes to Kubernetes end in the
copy, where the other controllers see them; the provider's writes are stopped and noted.
"""

import asyncio
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson

from ccm.bus.frames import (
    CloudRemaining,
    CloudThrottled,
    Granted,
    GrantRequest,
    Hello,
    Message,
    Objects,
    ProposeDeletions,
)
from ccm.bus.in_flight import InFlightJournal
from ccm.bus.sockets import Permission
from ccm.cloud.dry_run import Changes, ReadingGate, record_changes
from ccm.cloud.gate import SupervisorGrants, WorkerGate
from ccm.cloud.interface import CloudProvider
from ccm.cloud.registry import load_provider
from ccm.cloud.secrets import with_readers
from ccm.controllers import enabled_provided, load_controller
from ccm.decide.deletion import Reason
from ccm.dry_run.cluster import KINDS, Change, ClusterCopy
from ccm.errors import ConfigurationFault, NotLeading
from ccm.kube.client import Fence, Kube, RestConfig
from ccm.kube.cluster_identity import read_cluster_uid
from ccm.kube.events import Event, EventRecorder
from ccm.kube.watch import list_once
from ccm.model.objects import Json, Projection, project, resource_version, watched_kind
from ccm.model.status import DeletionCandidate, WorkerReport
from ccm.model.writes import Write
from ccm.settings import Settings
from ccm.settings.leader_migration import disable_controllers
from ccm.supervisor.budget import Budget
from ccm.supervisor.deletions import DeletionGovernor, policy_of
from ccm.supervisor.delivery import ProjectedStore
from ccm.supervisor.nodes import NODE_PROJECTION, NodeLister
from ccm.worker_names import wanted_workers
from workers.controller import ControllerContext, ControllerModule, NotNeeded
from workers.executor import KeyExecutor
from workers.main import provider_context, require_cluster_id, require_machine_marks
from workers.performer import ObjectCheck, Performer
from workers.queue import WorkQueue
from workers.runner import Connection, Runner
from workers.store import Store

MONITOR_PERIOD = 0.5  # seconds between two passes over nodes that are not Ready
REFRESH_PERIOD = 1.0  # seconds of one pass over all nodes
IDLE_FOR = 3.0  # seconds without a change after which there is nothing more to come
NEXT_TRY_WITHIN = 12.0  # seconds; what a controller looks at again before belongs to the plan
ROUTE_PERIOD = 2 * IDLE_FOR  # seconds of one pass over all routes, which is never idle
CHECK_INTERVAL = 0.25
WORKER = "plan.1"


@dataclass(frozen=True, slots=True)
class Plan:
    """What would change, what it would cost, and what would not work.

    `cloud` is as `ccm.cloud.dry_run.Changes`, `problems` are the Warnings that people would get,
    `waiting` has why an object is not done. `is_complete`: all controllers were idle in time.
    """

    kubernetes: list[Change]
    cloud: list[Json]
    problems: list[str]
    waiting: dict[str, str]
    cost: dict[str, int]
    is_complete: bool


async def make_plan(settings: Settings, access: RestConfig, timeout: float) -> Plan:
    """The plan for this cluster, within `timeout` seconds.

    Lists Nodes, Services and PersistentVolumes, asks the cloud, and writes to neither. Raises
    `ConfigurationFault` or `ConfigurationFaults` when a controller cannot start.
    """
    settings = _dry(settings)
    kube = Kube(access, "ccm-supervisor/plan", settings.kube_api_in_flight, fence=Fence(_refuse))
    try:
        listed = {kind: await list_once(kube, f"/api/v1/{name}") for name, kind in KINDS.items()}
        with TemporaryDirectory(prefix="ccm-plan-") as directory:
            async with DryRun(settings, kube, ClusterCopy(listed), Path(directory)) as dry_run:
                is_complete = await dry_run.until_idle(timeout)
                return dry_run.plan(is_complete)
    finally:
        await kube.close()


def _dry(settings: Settings) -> Settings:
    """The operator's settings, but as the only replica, of our controllers, and without pauses."""
    return replace(
        disable_controllers(settings, enabled_provided(settings.controllers)),
        leader_elect=False,
        enable_leader_migration=False,
        node_workers=1,
        node_monitor_period=MONITOR_PERIOD,
        node_deletion_confirmation_period=0.0,
        node_status_update_frequency=REFRESH_PERIOD,
        route_reconciliation_period=max(settings.route_reconciliation_period, ROUTE_PERIOD),
    )


def _refuse() -> None:
    raise NotLeading("a dry run writes nothing")


class RecordingPerformer(Performer):
    """Writes to the copy."""

    def __init__(self, kube: Kube, permission: Permission, copy: ClusterCopy) -> None:
        super().__init__(kube, permission, 0.0)
        self._copy = copy

    async def perform(
        self, write: Write, check: ObjectCheck = lambda _: None, since: int = 0
    ) -> Json:
        return self._copy.apply(write)


class EventList(EventRecorder):
    """Keeps Events instead of sending them."""

    def __init__(self, kube: Kube) -> None:
        super().__init__(kube, "plan", "plan")
        self.events: dict[Event, None] = {}

    def record(self, event: Event) -> None:
        self.events[event] = None


class DryRunPort:
    """The supervisor as one controller sees it, in this process."""

    def __init__(self, governor: DeletionGovernor, store: Store) -> None:
        self.store, self.permission = store, Permission()
        self.permission.renew(sys.float_info.max)
        self.runner: Runner
        self._governor, self._frames = governor, 0

    def send(self, message: Message) -> bool:
        """Take a message of the controller; only the governor has an answer to one."""
        if isinstance(message, ProposeDeletions):
            self.runner.on_message(self._governor.on_message(WORKER, message))
        return True

    def deliver(self, entries: list[list[object]], is_snapshot: bool = False) -> None:
        """Let the controller see these objects."""
        self._frames += 1
        self.runner.on_message(Objects.of(1, self._frames, is_snapshot, entries))


class DryRun:
    """All enabled controllers on one copy, with one provider, from `async with` on."""

    def __init__(self, settings: Settings, kube: Kube, copy: ClusterCopy, directory: Path) -> None:
        self._settings, self._kube, self._copy = settings, kube, copy
        self._directory = directory
        self._changes: Changes = {}
        self._events = EventList(kube)
        self._ports: list[DryRunPort] = []
        self._seen = ProjectedStore("Node")
        self._nodes = NodeLister(self._seen)
        policy = policy_of(settings)
        self._governor = DeletionGovernor(
            policy, directory / "deletions.json", self._nodes, lambda *_: None
        )
        self._grants = SupervisorGrants(self._on_cloud_message)
        self._budget = Budget(
            settings.cloud_rate, self._on_granted, lambda _: True, settings.cloud_reserve
        )
        self._gate = WorkerGate(self._grants, settings.cloud_call_timeout, lambda: None)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "DryRun":
        provider = await self._provider()
        record_changes(provider, self._changes)
        self._nodes.provider_ids = provider.provider_ids
        self._budget.declare({n: [q.per_second, q.burst] for n, q in provider.quotas.items()})
        for name, obj in self._copy.now["Node"].items():
            self._see_node(name, obj)
        self._copy.on_change = self._on_change
        for controller in dict.fromkeys(wanted_workers(self._settings).values()):
            self._start(controller, provider)
        return self

    async def __aexit__(self, *exception: object) -> None:
        for port in self._ports:
            port.runner.drain(0.0)
        await self._stack.aclose()

    async def until_idle(self, timeout: float) -> bool:
        """Whether everything came to an end in time."""
        now = time.monotonic()
        deadline, since, last = now + timeout, now, ""
        while (now := time.monotonic()) < deadline:
            await asyncio.sleep(CHECK_INTERVAL)
            state = repr((self._copy.writes, self._changes))
            if state != last or not self._is_idle():
                last, since = state, now
            if now - since >= IDLE_FOR:
                return True
        return False

    def plan(self, is_complete: bool) -> Plan:
        """What was recorded so far."""
        reasons = [port.runner.status()["reasons"] for port in self._ports]
        reasons.append(dict(_undeleted(self._governor.status(time.monotonic())["candidates"])))
        return Plan(
            kubernetes=list(self._copy.changes()),
            cloud=sorted(self._changes.values(), key=lambda item: (item["about"], item["does"])),
            problems=sorted(
                {_text(event) for event in self._events.events if event.type == "Warning"}
            ),
            waiting={key: why for some in reasons for key, why in some.items()},
            cost={
                "kubernetes_writes": self._copy.writes,
                "kubernetes_events": len(self._events.events),
                "cloud_reads": self._gate.calls.total(),
            },
            is_complete=is_complete,
        )

    def _start(self, controller: str, provider: CloudProvider) -> None:
        module: ControllerModule = load_controller(controller, self._settings.cloud_provider)
        port = DryRunPort(self._governor, Store(module.PROJECTIONS))
        journal = InFlightJournal(self._directory / f"{controller}.journal")
        context = ControllerContext(
            settings=self._settings,
            provider=provider,
            store=port.store,
            queue=WorkQueue(module.BACKOFF),
            executor=KeyExecutor(journal, port.send, {}, module.concurrency(self._settings)),
            performer=RecordingPerformer(self._kube, port.permission, self._copy),
            recorder=self._events,
            send=port.send,
        )
        try:
            made = module.new_controller(context)
        except NotNeeded:
            return
        port.runner = Runner(Connection(port, self._grants, self._gate), context, made)
        self._ports.append(port)
        running = asyncio.create_task(port.runner.run(Hello([], {})))
        self._stack.push_async_callback(asyncio.wait, [running])
        snapshot = (
            _entry(projection, key, obj)
            for projection in port.store.projections
            for key, obj in self._copy.now[watched_kind(projection.kind)].items()
        )
        port.deliver(list(snapshot), is_snapshot=True)

    def _on_change(self, kind: str, key: str, obj: Json | None) -> None:
        """A controller wrote: all of them see it, as from a watch."""
        if kind == "Node":
            self._see_node(key, obj)
        for port in self._ports:
            for projection in port.store.projections:
                if watched_kind(projection.kind) == kind:
                    entry = _entry(projection, key, obj)
                    asyncio.get_running_loop().call_soon(port.deliver, [entry])

    def _see_node(self, name: str, obj: Json | None) -> None:
        self._seen.values.pop(name, None)
        if obj is not None:
            seen = orjson.dumps(project(obj, NODE_PROJECTION.paths))
            self._seen.values[name] = resource_version(obj), seen

    def _on_cloud_message(self, message: Message) -> bool:
        match message:
            case GrantRequest():
                self._budget.request(WORKER, message)
            case CloudThrottled():
                self._budget.slow_down(WORKER, message)
            case CloudRemaining():
                self._budget.limit(message)
        return True

    def _on_granted(self, worker: str, message: Message) -> bool:
        if isinstance(message, Granted):
            asyncio.get_running_loop().call_soon(self._grants.on_granted, message)
        return True

    async def _provider(self) -> CloudProvider:
        provider, gate = load_provider(self._settings.cloud_provider), ReadingGate(self._gate)
        cluster_uid = await read_cluster_uid(self._kube)
        given = provider_context(self._settings, gate, "plan", cluster_uid)
        await provider.initialize(with_readers(given, self._kube.lane(), creates=False))
        try:
            require_machine_marks(provider, self._settings)
            require_cluster_id(provider, self._settings)
        except ConfigurationFault:
            await provider.close()
            raise
        self._stack.push_async_callback(provider.close)
        return provider

    def _is_idle(self) -> bool:
        candidates = self._governor.status(time.monotonic())["candidates"]
        return is_idle([port.runner.status() for port in self._ports], candidates)


def _entry(projection: Projection, key: str, obj: Json | None) -> list[object]:
    """An object as a frame has it; one that is gone has no value."""
    value = project(obj, projection.paths) if obj else None
    return [projection.kind, key, resource_version(obj) if obj else 0, value]


def is_idle(
    controllers: Iterable[WorkerReport], deletion_candidates: Iterable[DeletionCandidate]
) -> bool:
    """Whether every controller has done what it can do now, and no deletion is on its way."""
    return all(map(_is_done, controllers)) and not any(map(_is_coming, deletion_candidates))


def _is_coming(candidate: DeletionCandidate) -> bool:
    """Whether this Node will be deleted within seconds; what the budget holds up takes longer."""
    return candidate["verdict"] in ("permit", "not yet") and candidate["reason"] != Reason.BUDGET


def _is_done(controller: WorkerReport) -> bool:
    if not controller.get("refresh_passes", 1):
        return False
    queue = controller["queue"]
    next_try = queue["next_seconds"]
    is_waiting = next_try is None or next_try > NEXT_TRY_WITHIN
    is_busy = queue["ready"] or queue["parked"] or queue["oldest_seconds"]
    return is_waiting and not is_busy


def _undeleted(candidates: Iterable[DeletionCandidate]) -> Iterator[tuple[str, str]]:
    """Nodes whose machine is gone, and why they are not deleted."""
    for item in candidates:
        yield item["node"], f"its machine is gone; deleting it: {item['verdict']}, {item['reason']}"


def _text(event: Event) -> str:
    ref = event.object_ref
    name = "/".join(filter(None, (ref.namespace, ref.name)))
    return f"{ref.kind} {name}: {event.reason}: {event.message}"
