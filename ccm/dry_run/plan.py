"""A rehearsal: the real supervisor and its workers on a copy of the cluster, until they rest."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ccm.bus.paths import claim
from ccm.cloud.dry_run import Changes
from ccm.decide.children import WorkerState
from ccm.decide.deletion import Reason
from ccm.dry_run.difference import Change, Objects, differences
from ccm.errors import ExitCode
from ccm.kube import config
from ccm.kube.access import Access
from ccm.kube.client import Kube
from ccm.kube.lease import LeaseClient
from ccm.kube.watch import list_once
from ccm.model.objects import Json
from ccm.sandbox.kubernetes.kinds import EVENT, NAMESPACE, NODE, PERSISTENT_VOLUME, SERVICE
from ccm.sandbox.kubernetes.objects import clone
from ccm.sandbox.kubernetes.server import SandboxServer
from ccm.settings import Settings
from ccm.supervisor.loop import Supervisor

KINDS = (NODE, SERVICE, PERSISTENT_VOLUME)
ROUND = 0.5  # seconds between two rounds of questions about nodes that are not Ready
PASS = 1.0  # seconds of one pass over all nodes
REST = 3.0  # seconds without a change after which there is nothing more to come
SOON = 12.0  # seconds; what a worker looks at again before belongs to the plan
LOOK = 0.25


class WorkersRefuse(Exception):
    """The workers cannot work with this configuration; the text is theirs, a line a fault."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What would change, what it would cost, and what would not work.

    `cloud` is as `ccm.cloud.dry_run.Changes`, `problems` are the Warnings that people would get,
    `waiting` tells why an object is not done. `is_complete`: all came to rest in time.
    """

    kubernetes: list[Change]
    cloud: list[Json]
    problems: list[str]
    waiting: dict[str, str]
    cost: dict[str, int]
    is_complete: bool


async def make_plan(settings: Settings, access: Access, patience: float) -> Plan:
    """The plan for this cluster; `patience` is the most seconds it may take.

    Lists Nodes, Services and PersistentVolumes, asks the cloud, and writes to neither.
    """
    there = Kube(access, "ccm-supervisor/plan", settings.kube_api_in_flight)
    try:
        before = {kind.name: _named(await list_once(there, _path(kind.plural))) for kind in KINDS}
    finally:
        await there.close()
    with TemporaryDirectory(prefix="ccm-plan-") as directory:
        async with SandboxServer() as copy:
            _fill(copy, before)
            settings = _rehearsing(settings, copy, Path(directory))
            return await _rehearse(settings, copy, before, patience)


def _path(plural: str) -> str:
    return f"/api/v1/{plural}"


def _named(objects: list[Json]) -> dict[str, Json]:
    return {
        "/".join(filter(None, (o["metadata"].get("namespace"), o["metadata"]["name"]))): o
        for o in objects
    }


def _fill(copy: SandboxServer, objects: Mapping[str, Objects]) -> None:
    places = {name.rpartition("/")[0] for name in objects[SERVICE.name]}
    missing = places - copy.objects(NAMESPACE).keys()
    copy.take_over(NAMESPACE, ({"metadata": {"name": name}} for name in sorted(missing)))
    for kind in KINDS:
        copy.take_over(kind, map(clone, objects[kind.name].values()))


def _rehearsing(settings: Settings, copy: SandboxServer, directory: Path) -> Settings:
    """The operator's settings, but alone, on the copy, and without long pauses."""
    return replace(
        settings,
        kubeconfig=str(copy.kubeconfig(directory / "kubeconfig")),
        master="",
        runtime_dir=str(directory / "run"),
        state_dir="",
        leader_elect=False,
        enable_leader_migration=False,
        use_service_account_credentials=False,
        secure_port=0,
        node_workers=1,
        node_monitor_period=ROUND,
        node_status_update_frequency=PASS,
        v=settings.v or -1,
    )


async def _rehearse(
    settings: Settings, copy: SandboxServer, before: Mapping[str, Objects], patience: float
) -> Plan:
    access = await config.load(config.Source(settings.kubeconfig))
    paths, lock = claim(settings.runtime_dir)
    kube = Kube(access, "ccm-supervisor/supervisor")
    lease = LeaseClient(kube, "kube-system", "plan", "plan", 0.0)  # nobody takes it
    with lock:
        supervisor = Supervisor(settings, paths, kube, lease, is_dry_run=True)
        running = asyncio.create_task(supervisor.run())
        try:
            is_complete = await _come_to_rest(supervisor, running, copy, patience)
            plan = _written_down(supervisor.status(), copy, before, is_complete)
        finally:
            supervisor.stop()
            await running
            await kube.close()
    if supervisor.faults:
        raise WorkersRefuse("\n".join(supervisor.faults))
    return plan


async def _come_to_rest(
    supervisor: Supervisor, running: asyncio.Task[ExitCode], copy: SandboxServer, patience: float
) -> bool:
    """Whether everything came to rest; also ends with the supervisor and with the patience."""
    now = time.monotonic()
    deadline, since, last = now + patience, now, ""
    while not running.done() and now < deadline:
        await asyncio.wait([running], timeout=LOOK)
        now, status = time.monotonic(), supervisor.status()
        state = repr((len(copy.requests.select(writes=True)), list(_rehearsed(status))))
        if state != last or not _is_idle(status):
            last, since = state, now
        if now - since >= REST:
            return True
    return False


def _is_idle(status: Json) -> bool:
    """Whether every worker has done what it can do now, and no deletion is on its way."""
    if any(map(_is_coming, status["deletions"]["candidates"])):
        return False
    return all(map(_is_at_rest, status["workers"]))


def _is_coming(candidate: Json) -> bool:
    """Whether this Node will be deleted within seconds; what the budget holds up takes longer."""
    return candidate["verdict"] in ("permit", "not yet") and candidate["reason"] != Reason.BUDGET


def _is_at_rest(worker: Json) -> bool:
    if worker["state"] != WorkerState.RUNNING:
        return worker["state"] in (WorkerState.SKIPPED, WorkerState.FAILED)
    if "queue" not in worker or not worker.get("refresh_passes", 1):
        return False
    ready, oldest, due = (worker["queue"][k] for k in ("ready", "oldest_seconds", "next_seconds"))
    return not ready and not oldest and (due is None or due > SOON)


def _rehearsed(status: Json) -> Iterator[Changes]:
    for worker in status["workers"]:
        yield worker.get("rehearsed", {})


def _written_down(
    status: Json, copy: SandboxServer, before: Mapping[str, Objects], is_complete: bool
) -> Plan:
    writes = [request.resource for request in copy.requests.select(writes=True)]
    changes = (differences(kind.name, before[kind.name], copy.objects(kind)) for kind in KINDS)
    reasons = [worker.get("reasons", {}) for worker in status["workers"]]
    reasons.append(dict(_kept(status["deletions"]["candidates"])))
    calls = (sum(worker.get("cloud_calls", {}).values()) for worker in status["workers"])
    events = copy.objects(EVENT).values()
    return Plan(
        kubernetes=[change for of_kind in changes for change in of_kind],
        cloud=sorted(
            (change for part in _rehearsed(status) for change in part.values()),
            key=lambda change: (change["about"], change["does"]),
        ),
        problems=sorted({_told(event) for event in events if event["type"] == "Warning"}),
        waiting={key: why for some in reasons for key, why in some.items()},
        cost={
            "kubernetes_writes": sum(resource != "events" for resource in writes),
            "kubernetes_events": writes.count("events"),
            "cloud_reads": sum(calls),
        },
        is_complete=is_complete,
    )


def _kept(candidates: Iterable[Json]) -> Iterator[tuple[str, str]]:
    """Nodes whose machine is gone, and why they are not deleted."""
    for item in candidates:
        yield item["node"], f"its machine is gone; deleting it: {item['verdict']}, {item['reason']}"


def _told(event: Json) -> str:
    involved = event["involvedObject"]
    name = "/".join(filter(None, (involved.get("namespace"), involved["name"])))
    return f"{involved['kind']} {name}: {event['reason']}: {event['message']}"
