"""The first code of a worker process: tie it to its parent, build its parts, run its controller."""

import asyncio
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ccm.bus.frames import Drain, Fault, Hello, TokenRefused, WorkerSpec
from ccm.bus.in_flight import InFlightJournal
from ccm.bus.sockets import Port
from ccm.cloud.gate import SupervisorGrants, WorkerGate
from ccm.cloud.interface import CloudProvider, Gate, MarksMachines, ProviderContext
from ccm.cloud.proof import prove_credentials
from ccm.cloud.registry import keep_provider, load_provider, read_config
from ccm.cloud.secrets import with_readers
from ccm.controllers import keep_controller, load_controller
from ccm.decide.lease import write_grace
from ccm.errors import CloudError, ConfigurationFault, ConfigurationFaults, Denied, ExitCode
from ccm.kube.client import Fence, Kube, RateLimit, RestConfig, WorkerToken
from ccm.kube.events import EventRecorder
from ccm.log import set_up
from ccm.processes import die_with_parent, keep_memory_private
from ccm.settings import Settings
from workers.cloud_changes import CloudChanges
from workers.controller import ControllerContext, ControllerModule, NotNeeded
from workers.executor import KeyExecutor
from workers.performer import Performer
from workers.queue import WorkQueue
from workers.runner import Connection, Runner
from workers.store import Store

log = logging.getLogger(__name__)

GRACE_WITHOUT_ELECTION = 30.0  # seconds; there is no other replica
FAULT_TIMEOUT = 2.0  # seconds for which a worker that cannot start waits to be heard


def preload(provider: str, controllers: Sequence[str]) -> None:
    """Import what workers of these controllers need; what cannot be imported, they report."""
    for name in controllers:
        with suppress(ConfigurationFault):
            keep_controller(name, provider)
    try:
        keep_provider(provider)
        load_provider(provider)
    except (Exception, SystemExit):  # around one callback: whatever an import does
        log.debug("provider not loaded beforehand", exc_info=True)


def main(spec: WorkerSpec) -> None:
    """Run one worker and exit with its code."""
    die_with_parent(spec.supervisor_pid)
    keep_memory_private()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the supervisor, which decides
    faulthandler.enable()  # SIGABRT from the supervisor writes the stacks of a hanging worker
    set_up(spec.name, spec.settings.logging_format, spec.settings.v)
    try:
        code = asyncio.run(_live(spec))
    except SystemExit:  # whatever code a provider gives it: only ours mean something
        log.exception("the provider ended this process")
        code = ExitCode.FAILED
    sys.exit(code)


async def _live(spec: WorkerSpec) -> ExitCode:
    token = WorkerToken(lambda: port.send(TokenRefused()))
    port = Port(Path(spec.bus_path), spec.ident, lambda file: token.set(Path(file).read_text()))
    receiving = asyncio.create_task(port.run())
    receiving.add_done_callback(_exit_when_disconnected)
    try:
        return await _work(spec, port, token)
    except ConfigurationFaults as faults:
        return await _end(port, faults.faults, ExitCode.CONFIGURATION)
    except ConfigurationFault as fault:
        return await _end(port, [fault], ExitCode.CONFIGURATION)
    finally:
        receiving.cancel()
        port.close()


def _exit_when_disconnected(receiving: "asyncio.Task[None]") -> None:
    """A worker that cannot hear its supervisor any more must end; it is started again."""
    if not receiving.cancelled():
        log.error("cannot receive any more", exc_info=receiving.exception())
        os._exit(ExitCode.FAILED)


async def _end(port: Port, whys: Sequence[Exception], code: ExitCode) -> ExitCode:
    """Say why, and end once that was heard: the supervisor learns of the end by another way."""
    heard = asyncio.Event()
    port.on_message = lambda message: heard.set() if isinstance(message, Drain) else None
    port.send(Fault([str(why) for why in whys]))
    with suppress(TimeoutError):
        async with asyncio.timeout(FAULT_TIMEOUT):
            await heard.wait()
    return code


async def _work(spec: WorkerSpec, port: Port, token: WorkerToken) -> ExitCode:
    settings = spec.settings
    module: ControllerModule = load_controller(spec.controller, settings.cloud_provider)
    grants = SupervisorGrants(port.send)
    gate = WorkerGate(grants, settings.cloud_call_timeout, port.permission.check)
    provider = load_provider(settings.cloud_provider)
    changes = CloudChanges()
    on_change = changes.announce if spec.controller == "node" else None
    grace = _grace(settings)
    kube = _kube(spec, module.COMPONENT, Fence(port.permission.check, grace), token)
    start = provider_context(settings, gate, spec.name, spec.cluster_uid)
    if spec.proves and (error := await prove_credentials(settings.cloud_provider, start)):
        is_refused = isinstance(error, Denied)
        code = ExitCode.CONFIGURATION if is_refused else ExitCode.UNPROVEN
        return await _end(port, [error], code)
    start = replace(start, on_change=on_change)
    try:
        await provider.initialize(with_readers(start, kube.lane(), creates=True))
    except CloudError as error:  # what another machine answers, or does not, may pass
        log.warning("the provider does not start yet", extra={"why": str(error)})
        return await _end(port, [error], ExitCode.UNPROVEN)
    require_machine_marks(provider, settings)
    require_cluster_id(provider, settings)
    port.permission.outlive_by(grace)
    port.is_idle = lambda: not (gate.under_way or kube.writes_under_way)
    try:
        queue, lane = WorkQueue(module.BACKOFF), kube.lane()
        context = ControllerContext(
            settings=settings,
            provider=provider,
            store=Store(module.PROJECTIONS),
            queue=queue,
            executor=KeyExecutor(
                InFlightJournal(Path(spec.journal_path)),
                port.send,
                spec.suspicions,
                module.concurrency(settings),
            ),
            performer=Performer(kube, port.permission, grace),
            recorder=EventRecorder(
                lane,
                module.COMPONENT,
                spec.name,
                # An Event a Node; those of other controllers show what takes its time.
                is_busy=lambda: spec.controller == "node" and queue.is_busy,
            ),
            send=port.send,
            changes=changes,
        )
        try:
            controller = module.new_controller(context)
        except NotNeeded as why:
            log.warning("controller left out", extra={"why": str(why)})
            return await _end(port, [why], ExitCode.NOT_NEEDED)
        connection = Connection(port, grants, gate, (gate.counters, kube.counters))
        runner = Runner(connection, context, controller)
        port.on_message = runner.on_message
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, runner.drain, settings.shutdown_timeout)
        # The first writes to Nodes are many at once, each on a connection.
        opening = asyncio.create_task(kube.connect()) if spec.controller == "node" else None
        await runner.run(_hello(module, provider))
        if opening:
            opening.cancel()
        return ExitCode.OK
    finally:
        await kube.close()
        await provider.close()


def require_machine_marks(provider: CloudProvider, settings: Settings) -> None:
    """Let the provider take only machines with the marks of `--machine-marks` for the cluster's."""
    instances: object = provider.instances
    if isinstance(instances, MarksMachines):
        instances.require_marks(settings.machine_marks)
    elif settings.machine_marks:
        problem = f"the machines of {provider.name} carry no marks that distinguish them"
        raise ConfigurationFault("--machine-marks", problem, "leave it out")


def require_cluster_id(provider: CloudProvider, settings: Settings) -> None:
    """Refuse a cloud whose objects may be another cluster's, as upstream does."""
    if provider.has_cluster_id:
        return
    if not settings.allow_untagged_cloud:
        raise ConfigurationFault(
            "--allow-untagged-cloud",
            "the cloud's objects carry no cluster ID",
            "tag them with the cluster's ID, or give this flag",
        )
    log.warning("the cloud's objects carry no cluster ID")


def provider_context(
    settings: Settings, gate: Gate, caller: str, cluster_uid: str
) -> ProviderContext:
    """What the provider gets at its start; `caller` names this process in the cloud's own log."""
    return ProviderContext(
        gate,
        read_config(settings.cloud_config),
        settings.cloud_config,
        settings.cluster_name,
        caller,
        settings.allow_untagged_cloud,
        cluster_uid,
        settings.restrict_service_annotations,
    )


def _kube(spec: WorkerSpec, component: str, fence: Fence, token: WorkerToken) -> Kube:
    """The client of this worker, which asks nothing until it has its identity."""
    settings, rate = spec.settings, None
    if settings.kube_api_qps:
        rate = RateLimit(settings.kube_api_qps, settings.kube_api_burst)
    access = RestConfig(spec.server, token.bearer)
    agent = f"ccm-supervisor/{component}"
    kube = Kube(access, agent, settings.kube_api_in_flight, rate, fence)
    kube.on_unauthorized = token.refused
    return kube


def _grace(settings: Settings) -> float:
    """Seconds between the end of a permission and the first moment another replica may lead."""
    if not settings.leader_elect:
        return GRACE_WITHOUT_ELECTION
    return write_grace(settings.leader_elect_lease_duration, settings.leader_elect_renew_deadline)


def _hello(module: ControllerModule, provider: CloudProvider) -> Hello:
    projections = [{"kind": item.kind, "paths": item.paths} for item in module.PROJECTIONS]
    quotas = {name: [quota.per_second, quota.burst] for name, quota in provider.quotas.items()}
    return Hello(projections, quotas, provider.provider_ids.pattern)
