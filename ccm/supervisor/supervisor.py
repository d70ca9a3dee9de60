"""The supervisor: puts lease, informer, budget, children and control together and runs them."""

import asyncio
import importlib
import logging
import os
import signal
import socket
import time
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from ccm import __version__
from ccm.background import call_until_done
from ccm.bus.control import ControlServer
from ccm.bus.frames import Drain, Message, UseToken
from ccm.bus.paths import RuntimePaths
from ccm.bus.sockets import Hub
from ccm.decide.children import WorkerState
from ccm.errors import ConfigurationFault, ExitCode
from ccm.kube.client import Kube
from ccm.kube.events import Event, EventRecorder
from ccm.kube.lease import COMPONENT, LeaseClient
from ccm.kube.watch import WatchTimings
from ccm.model.status import STATUS_SCHEMA, Status
from ccm.settings import Settings
from ccm.settings.leader_migration import read_leader_migration
from ccm.supervisor.accounts import Identities
from ccm.supervisor.budget import Budget
from ccm.supervisor.child import Child
from ccm.supervisor.children import Children, Hooks
from ccm.supervisor.commands import ControlCommands, Explainer, Verbosity
from ccm.supervisor.deletions import DeletionGovernor, policy_of
from ccm.supervisor.freeze import DeletionCommands, SharedFreeze
from ccm.supervisor.informer import InformerTimings, SharedInformer
from ccm.supervisor.leader_election import WorkerProbes
from ccm.supervisor.leadership import Leadership
from ccm.supervisor.listening import listen
from ccm.supervisor.nodes import NODE_PROJECTION, NodeLister, UninitializedNodes
from ccm.supervisor.outages import CloudOutages
from ccm.supervisor.permits import Permits
from ccm.supervisor.problems import find_outage, find_problems
from ccm.supervisor.progress import Progress
from ccm.supervisor.reload import Reloader
from ccm.supervisor.shards import Shards
from ccm.supervisor.starter import WorkerStarter, reap_orphans
from ccm.supervisor.systemd import SystemdNotifier, feed_watchdog, update_status
from ccm.supervisor.tokens import ServiceAccountTokens, SharedToken, TokenFiles, TokenSource
from ccm.supervisor.worker_counters import WorkerCounters
from ccm.supervisor.worker_messages import WorkerMessages, WorkerProcesses
from ccm.worker_names import wanted_workers

log = logging.getLogger(__name__)

DISK_INTERVAL = 0.5  # seconds between two looks at the runtime directory and the package


class Supervisor:
    """One replica. It knows its workers by name only and runs no provider code.

    A worker that `identities` has no account for acts as we do. The `starter` is the caller's,
    which ends it.
    """

    def __init__(
        self,
        settings: Settings,
        paths: RuntimePaths,
        kube: Kube,
        lease: LeaseClient,
        identities: Identities,
        starter: WorkerStarter,
    ) -> None:
        migration = read_leader_migration(settings)
        self._settings = settings = migration.without_unowned(settings) if migration else settings
        self._notifier = SystemdNotifier(os.environ)
        self._hub, self._paths = Hub(paths.bus), paths
        self._starter = starter
        server = kube.config.server
        if settings.use_service_account_credentials:
            server = server.without_certificate()
        self._children = Children(
            paths.bus, settings, server, starter.start, identities.cluster_uid
        )
        self.verbosity = Verbosity(settings, self._broadcast)
        self._permits = Permits(self._hub, self._children)
        self._leader = Leadership(
            settings,
            lease,
            migration,
            self._permits.on_change,
            probes=WorkerProbes(
                are_up=self._children.are_up,
                are_fenced=self._permits.are_fenced,
                down=self._children.down,
            ),
        )
        self._informer = SharedInformer(
            kube,
            self._hub.send_raw,
            InformerTimings(watch=WatchTimings(settings.watch_idle_limit)),
            self._is_anybody_starting,
        )
        processes = WorkerProcesses()
        self._budget = Budget(
            settings.cloud_rate, self._hub.send, processes.is_responsive, settings.cloud_reserve
        )
        self._token_files = TokenFiles(paths.directory)
        self._tokens: TokenSource = (
            ServiceAccountTokens(kube, self._hand_over_token, identities.accounts)
            if settings.use_service_account_credentials
            else SharedToken(kube.config, self._hand_over_token)
        )
        self._shards = Shards(
            settings.node_workers, self._children, self._informer, self._permits.send
        )
        self._nodes = NodeLister(self._informer.store(NODE_PROJECTION))
        self._recorder = EventRecorder(kube.lane(), COMPONENT, self._leader.identity)
        state = Path(settings.state_dir or paths.directory) / "deletions.json"
        freeze = SharedFreeze(kube, lease) if settings.leader_elect else None
        self._governor = DeletionGovernor(
            policy_of(settings),
            state,
            self._nodes,
            self._warn,
            shared_freeze=freeze.get if freeze else lambda: None,
        )
        self._explainer = Explainer(
            self._children, self._shards, self._governor, self._hub.send, self._why_standby
        )
        self._reloader = Reloader(self._children.replace_all, self.verbosity, self._notifier)
        commands = ControlCommands(
            self._children,
            self._shards,
            DeletionCommands(self._governor, freeze, self._why_standby),
            self._explainer,
            self.verbosity,
            self.status,
            self.stop,
            self._reloader.reload,
        )
        self._control = ControlServer(paths.control, commands.answer)
        self._worker_counters = WorkerCounters()
        self._messages = WorkerMessages(
            processes=processes,
            hub=self._hub,
            children=self._children,
            shards=self._shards,
            permits=self._permits,
            informer=self._informer,
            budget=self._budget,
            tokens=self._tokens,
            token_files=self._token_files,
            nodes=self._nodes,
            governor=self._governor,
            explainer=self._explainer,
            counters=self._worker_counters,
        )
        self._children.bind(
            Hooks(
                admit=self._messages.admit,
                gone=self._messages.forget,
                drain=self._drain,
                permit=self._permits.send,
                refused=self._on_refusal,
                settings_for=self._settings_for,
            )
        )
        self._progress = Progress(settings, self._leader, self._children)
        self._began = time.monotonic()
        self._stop = asyncio.Event()
        self._migration, self._api_counters = migration, kube.counters
        self._exit_code, self._is_loaded = ExitCode.OK, False
        self.faults: list[str] = []  # why the exit code is CONFIGURATION, for the operator
        self._cannot_serve: ConfigurationFault | None = None
        self._uninitialized: UninitializedNodes | None = None  # once HTTPS is served

    async def run(self) -> ExitCode:
        """Run until a signal, a command, a lost lease or a refused configuration.

        Raises `CannotListen` before anything else begins, and `ConfigurationFault` when a file
        keeps HTTPS from being served.
        """
        self._handle_signals()
        listening = listen(self._settings) if self._settings.secure_port else None
        wanted = wanted_workers(self._settings)
        await self._tokens.start({*wanted.values()})
        await self._control.start()
        await self._starter.loaded()
        self._children.add(wanted)
        tasks = [self._supervise(name, part) for name, part in self._parts(listening)]
        try:
            await self._stop.wait()
            await self._end()
        finally:
            self._children.kill_all()
            if not self._paths.are_held():
                os._exit(ExitCode.FAILED)  # what else is at our paths is another's
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._informer.close()
            self._token_files.remove()
            self._control.close()
            self._hub.close()
        if self._cannot_serve:
            raise self._cannot_serve
        return self._exit_code

    def _parts(
        self, listening: socket.socket | None
    ) -> list[tuple[str, Coroutine[Any, Any, None]]]:
        return [
            ("bus", self._hub.run(self._messages.handle)),
            *self._leader.elections(),
            ("children", self._children.run()),
            ("orphans", reap_orphans()),
            ("tokens", self._tokens.run()),
            ("events", self._recorder.run()),
            ("https", self._serve_https(listening)),
            ("systemd", update_status(self._notifier, self._is_settled, self._progress.sentence)),
            ("cloud outages", CloudOutages(self._children, self._warn).run()),
            ("runtime directory", self._check_directory()),
            ("package", self._check_package()),
            ("watchdog", feed_watchdog(self._notifier, self._what_is_stuck)),
        ]

    def _supervise(self, name: str, part: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run a part; when it ends, for whatever reason, the supervisor stops."""

        async def guarded() -> None:
            try:
                await part
            except ConfigurationFault as fault:
                self._cannot_serve = fault
            except Exception:  # a bug of ours: stop in order, be started again
                log.exception("part of the supervisor failed", extra={"part": name})
            self._request_stop(ExitCode.FAILED)

        return asyncio.create_task(guarded(), name=name)

    async def _serve_https(self, listening: socket.socket | None) -> None:
        """Serve for ever. It loads longer than the workers need to begin, so it does so beside.

        Nothing is loaded once it is reported that the supervisor has started.
        """
        if listening is None:
            self._on_loaded()
            await asyncio.Event().wait()
            return
        self._uninitialized = UninitializedNodes(self._nodes.store, self._leads_nodes)
        serving = await asyncio.to_thread(importlib.import_module, "ccm.supervisor.serving")
        self._on_loaded()
        server = serving.https_server(
            serving.HttpsDependencies(
                settings=self._settings,
                migration=self._migration,
                status=self.status,
                leader=self._leader,
                progress=self._progress,
                informer=self._informer,
                uninitialized=self._uninitialized,
                children=self._children,
                budget=self._budget,
                worker_counters=self._worker_counters,
                api_counters=self._api_counters,
                set_verbosity=self.verbosity.set,
                is_stopping=self._stop.is_set,
            )
        )
        try:
            await server.start(listening)
            await server.run()
        finally:
            await server.close()

    def _on_loaded(self) -> None:
        self._is_loaded = True
        log.info("supervisor started", extra={"version": __version__})

    def _is_settled(self) -> bool:
        """For systemd: whether the start is over."""
        return self._is_loaded and self._progress.is_settled()

    async def _check_package(self) -> None:
        """Return when workers could be started of another version of this package only."""
        is_logged = False
        while not self._starter.is_outdated:
            if not is_logged and self._starter.package.is_replaced():
                is_logged = True
                log.warning("package replaced on disk: what runs goes on until it is restarted")
            await asyncio.sleep(DISK_INTERVAL)
        log.error("package replaced on disk: workers would be of another version")

    async def _check_directory(self) -> None:
        """Return when the runtime directory is deleted: nothing could reach us or our workers."""
        while self._paths.are_held():  # noqa: ASYNC110 - the file system does not call
            await asyncio.sleep(DISK_INTERVAL)
        log.error("runtime directory deleted", extra={"path": self._paths.directory})

    async def _end(self) -> None:
        """Drain the workers while we still lead, then release the lease."""
        log.info("stopping")
        self._reloader.stop()
        self._notifier.stopping(self._settings.shutdown_timeout)
        await self._children.stop_all(self._settings.shutdown_timeout)
        await self._leader.release()

    def _leads_nodes(self) -> bool:
        return self._leader.until("node") > time.monotonic()

    def _why_standby(self) -> str:
        """Why no Node is deleted by this replica; empty while it may."""
        return "" if self._leads_nodes() else self._leader.last_decision

    def _is_anybody_starting(self) -> bool:
        """Whether a worker has yet to subscribe; also before any was started."""
        states = [child.life.state for child in self._children]
        return not states or WorkerState.STARTING in states

    # What the parts report.

    def _what_is_stuck(self) -> str | None:
        """For the watchdog; systemd limits an orderly stop by its duration."""
        return None if self._stop.is_set() else self._progress.what_is_stuck()

    def _on_refusal(self, child: Child) -> None:
        """No worker can start with this configuration, and neither can the supervisor."""
        self.faults = child.last_faults
        self._request_stop(ExitCode.CONFIGURATION)

    def _settings_for(self, controller: str) -> Settings:
        return replace(self._leader.settings_for(controller), v=self.verbosity.level)

    def _broadcast(self, message: Message, controller: str = "") -> None:
        """Send it to all workers, or to those of one controller."""
        for child in self._children:
            for process in child.processes() if controller in ("", child.controller) else ():
                self._hub.send(process.ident, message)

    def _hand_over_token(self, controller: str, token: str) -> None:
        self._broadcast(UseToken(self._token_files.write(controller, token)), controller)

    def _drain(self, ident: str, seconds: float) -> None:
        self._hub.send(ident, Drain(seconds))

    def _warn(self, reason: str, message: str) -> None:
        """Record a Warning Event on the Lease, which outlives every Node."""
        self._recorder.record(Event(self._leader.object_ref(), "Warning", reason, message))

    # What people ask for.

    def _handle_signals(self) -> None:
        actions = {
            signal.SIGTERM: self.stop,
            signal.SIGINT: self.stop,
            signal.SIGHUP: self._reloader.begin,
        }
        for number, action in actions.items():
            asyncio.get_running_loop().add_signal_handler(number, call_until_done, action)

    def stop(self) -> None:
        """Stop in order; the second time at once."""
        if self._stop.is_set():
            log.warning("stopping at once")
            self._children.kill_all()
        self._request_stop(ExitCode.OK)

    def _request_stop(self, code: ExitCode) -> None:
        if not self._stop.is_set():
            self._exit_code = code
            self._stop.set()

    def status(self) -> Status:
        """What `ccm-supervisor status` shows."""
        now = time.monotonic()
        status: Status = {
            "schema": STATUS_SCHEMA,
            "problems": [],
            "cloud_outage": {},
            "version": __version__,
            "provider": self._settings.cloud_provider,
            "up_seconds": round(now - self._began, 1),
            "tasks": len(asyncio.all_tasks()),
            "leader": self._leader.status(now),
            "workers": [child.describe(now) for child in self._children],
            "quarantined": self._children.quarantine.status(now),
            "deletions": self._governor.status(now),
            "informer": self._informer.status(now),
            "budget": self._budget.status(now),
            "identities": self._tokens.status(now),
            "uninitialized_nodes": self._uninitialized.status(now) if self._uninitialized else {},
        }
        status["problems"] = [problem.describe() for problem in find_problems(status)]
        if outage := find_outage(status["workers"]):
            status["cloud_outage"] = {"why": outage.why, "seconds": outage.seconds}
        return status
