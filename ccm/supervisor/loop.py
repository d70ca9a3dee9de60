"""The supervisor: puts lease, feed, budget, children and control together and runs until told."""

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Coroutine
from typing import Any

from ccm import __version__
from ccm.bus.control import ControlServer
from ccm.bus.frames import (
    Ack,
    AskCalls,
    Beat,
    CloudThrottled,
    Drain,
    Fault,
    Hello,
    Message,
    Permit,
    Resync,
    ReturnCalls,
    Synced,
)
from ccm.bus.hub import Hub
from ccm.bus.paths import RuntimePaths
from ccm.decide.children import Event, State
from ccm.decide.shards import owner
from ccm.errors import ExitCode
from ccm.kube.client import Kube
from ccm.kube.lease import LeaseFile, new_identity
from ccm.model.node import Json
from ccm.settings import Settings
from ccm.supervisor.budget import Budget
from ccm.supervisor.children import Child, Children, Hooks
from ccm.supervisor.feed import Feed
from ccm.supervisor.leader import Leader, Timing

log = logging.getLogger(__name__)


class Supervisor:
    """One replica. It knows its workers by name only and runs no provider code."""

    def __init__(self, settings: Settings, paths: RuntimePaths, kube: Kube) -> None:
        self._settings = settings
        self._hub = Hub(paths.bus, self._on_message)
        self._feed = Feed(kube, self._hub.send_raw)
        self._budget = Budget(settings.cloud_rate, self._hub.send)
        self._leader = _leader(settings, kube, self._on_permit)
        self._control = ControlServer(paths.control, self._on_command)
        self._children = Children(
            _duties(settings),
            str(paths.bus),
            settings,
            Hooks(self._hub.admit, self._on_gone, self._on_refusal, self._drain),
        )
        self._shards = tuple(name for name, duty in _duties(settings).items() if duty == "node")
        self._until = 0.0
        self._began = time.monotonic()
        self._stop = asyncio.Event()
        self._outcome = ExitCode.OK
        self.faults: list[str] = []  # why the outcome is CONFIGURATION, for the operator

    async def run(self) -> ExitCode:
        """Run until a signal, a command, a lost lease or a refused configuration."""
        self._handle_signals()
        await self._control.start()
        self._children.start_all()
        tasks = [self._watch_over(name, work) for name, work in self._duties_of_our_own()]
        log.info("supervisor started", extra={"version": __version__})
        try:
            await self._stop.wait()
            await self._end()
        finally:
            self._children.kill_all()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._feed.close()
            self._control.close()
            self._hub.close()
        return self._outcome

    def _duties_of_our_own(self) -> list[tuple[str, Coroutine[Any, Any, None]]]:
        lead = self._leader.run() if self._settings.leader_elect else self._always_permit()
        return [
            ("bus", self._hub.run()),
            ("leadership", lead),
            ("silence", self._children.watch_silence()),
        ]

    def _watch_over(self, name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run `work`; when it ends, for whatever reason, the supervisor stops."""

        async def guarded() -> None:
            try:
                await work
            except Exception:  # a bug of ours: stop in order, be started again
                log.exception("part of the supervisor failed", extra={"part": name})
            self._request_stop(ExitCode.FAILED)

        return asyncio.create_task(guarded(), name=name)

    async def _always_permit(self) -> None:
        """Without leader election we may always act; the permission still needs renewing."""
        while True:
            self._on_permit(time.monotonic() + self._settings.leader_elect_renew_deadline)
            await asyncio.sleep(self._settings.leader_elect_retry_period)

    async def _end(self) -> None:
        """Drain the workers while we may still act, then give the lease back."""
        log.info("stopping")
        await self._children.end_all(self._settings.shutdown_timeout)
        if self._settings.leader_elect:
            await self._leader.release()

    # What the parts tell us.

    def _on_message(self, ident: str, message: Message) -> None:
        child = self._children.find(ident)
        if child is None:
            return  # the last words of a start that was replaced
        self._children.heard(child)
        match message:
            case Hello():
                self._budget.declare(message.quotas)
                self._children.note(child, Event.SAID_HELLO)
                self._feed.join(ident, message, self._ownership(child))
                self._hub.send(ident, Permit(self._until))
            case Ack(seq):
                self._feed.acknowledge(ident, seq)
            case Resync(why):
                log.warning("worker asks for a snapshot", extra={"worker": ident, "why": why})
                self._feed.begin_again(ident)
            case Synced():
                self._children.note(child, Event.SYNCED)
                self._note_permission(child)
            case Beat(facts):
                self._children.heard(child, facts)
            case AskCalls():
                self._budget.ask(ident, message)
            case ReturnCalls():
                self._budget.take_back(message)
            case CloudThrottled():
                self._budget.slow_down(ident, message)
            case Fault(lines):
                child.faults = lines

    def _on_permit(self, until: float) -> None:
        self._until = until
        for child in self._children:
            if child.process:
                self._hub.send(child.ident, Permit(until))
                self._note_permission(child)

    def _note_permission(self, child: Child) -> None:
        may_act = self._until > time.monotonic()
        self._children.note(child, Event.MAY_ACT if may_act else Event.MAY_NOT_ACT)

    def _on_gone(self, ident: str) -> None:
        self._hub.dismiss(ident)
        self._feed.leave(ident)
        self._budget.forget(ident)

    def _on_refusal(self, child: Child) -> None:
        """A worker cannot work as configured: at the start that is true for all of us."""
        for line in child.faults:
            log.error("worker refused to start", extra={"worker": child.name, "why": line})
        if not any(other.life.state is State.RUNNING for other in self._children):
            self.faults = self.faults or child.faults or [f"worker {child.name} refused to start"]
            self._request_stop(ExitCode.CONFIGURATION)

    def _drain(self, ident: str, seconds: float) -> None:
        self._hub.send(ident, Drain(seconds))

    def _ownership(self, child: Child) -> Callable[[str, str], bool]:
        if child.duty != "node" or len(self._shards) == 1:
            return lambda kind, key: True
        return lambda kind, key: kind != "Node" or owner(key, self._shards) == child.name

    # What people tell us.

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop_signal)

    def _on_stop_signal(self) -> None:
        if self._stop.is_set():
            log.warning("stopping at once")
            self._children.kill_all()
        self._request_stop(ExitCode.OK)

    def _request_stop(self, outcome: ExitCode) -> None:
        if not self._stop.is_set():
            self._outcome = outcome
            self._stop.set()

    async def _on_command(self, request: Json) -> Json:
        match request.get("command"):
            case "status":
                return self._status()
            case "stop":
                self._on_stop_signal()
                return {"ok": "stopping"}
            case "restart":
                child = self._children.named(str(request.get("worker")))
                if child is None:
                    names = ", ".join(child.name for child in self._children)
                    return {"error": f"no worker {request.get('worker')!r}; there are: {names}"}
                self._children.restart(child)
                return {"ok": f"{child.name} finishes its work in hand and starts again"}
        return {"error": f"unknown command {request.get('command')!r}"}

    def _status(self) -> Json:
        now = time.monotonic()
        return {
            "version": __version__,
            "provider": self._settings.cloud_provider,
            "up_seconds": round(now - self._began, 1),
            "leader": {
                "identity": self._leader.identity,
                "may_act": self._until > now,
                "seconds_left": round(max(self._until - now, 0.0), 1),
                "decision": self._leader.sentence if self._settings.leader_elect else "not used",
            },
            "workers": [_describe(child, now) for child in self._children],
            "feed": self._feed.facts(now),
            "budget": self._budget.facts(now),
        }


def _duties(settings: Settings) -> dict[str, str]:
    """Worker name → duty, which is the name of the package under `workers`."""
    return {f"node-{number}": "node" for number in range(settings.node_workers)}


def _leader(settings: Settings, kube: Kube, on_permit: Callable[[float], None]) -> Leader:
    lease = LeaseFile(
        kube,
        settings.leader_elect_resource_namespace,
        settings.leader_elect_resource_name,
        new_identity(),
        settings.leader_elect_lease_duration,
    )
    timing = Timing(
        settings.leader_elect_lease_duration,
        settings.leader_elect_renew_deadline,
        settings.leader_elect_retry_period,
    )
    return Leader(lease, timing, on_permit)


def _describe(child: Child, now: float) -> Json:
    return {
        "name": child.name,
        "state": child.life.state,
        "state_seconds": round(now - child.life.since, 1),
        "pid": child.pid,
        "restarts": max(child.starts - 1, 0),
        "silent_seconds": round(now - child.heard_at, 1),
        "faults": child.faults,
        **child.facts,
    }
