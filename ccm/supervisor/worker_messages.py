"""What the processes of the workers say, and which part of the supervisor it is for."""

import logging
import re
import time
from dataclasses import dataclass

from ccm.bus.frames import (
    Ack,
    CloudRemaining,
    CloudThrottled,
    CompareRoutes,
    Drain,
    Explained,
    Fault,
    Fenced,
    GrantRequest,
    Heartbeat,
    Hello,
    Message,
    ProposeDeletions,
    Resync,
    Survived,
    Synced,
    TokenRefused,
    UseToken,
)
from ccm.bus.sockets import Hub
from ccm.model.conform import conform
from ccm.model.status import WorkerReport
from ccm.supervisor.budget import Budget
from ccm.supervisor.child import Child, WorkerProcess
from ccm.supervisor.children import Children
from ccm.supervisor.commands import Explainer
from ccm.supervisor.deletions import DeletionGovernor
from ccm.supervisor.informer import SharedInformer
from ccm.supervisor.nodes import NodeLister
from ccm.supervisor.permits import Permits
from ccm.supervisor.shards import Shards
from ccm.supervisor.tokens import TokenFiles, TokenSource
from ccm.supervisor.worker_counters import WorkerCounters

log = logging.getLogger(__name__)

RESPONSIVE_WITHIN = 3.0  # seconds since the last sign of life, of which there is one a second


class WorkerProcesses(dict[str, tuple[Child, WorkerProcess]]):
    """Those that run, by their names on the bus."""

    def is_responsive(self, ident: str) -> bool:
        """Whether this process gave a sign of life just now; one that hangs is granted nothing."""
        found = self.get(ident)
        return found is not None and time.monotonic() - found[1].heard_at < RESPONSIVE_WITHIN


@dataclass(frozen=True, slots=True)
class WorkerMessages:
    """The parts of a supervisor that hear of worker processes."""

    processes: WorkerProcesses
    hub: Hub
    children: Children
    shards: Shards
    permits: Permits
    informer: SharedInformer
    budget: Budget
    tokens: TokenSource
    token_files: TokenFiles
    nodes: NodeLister
    governor: DeletionGovernor
    explainer: Explainer
    counters: WorkerCounters

    def admit(self, child: Child, process: WorkerProcess) -> None:
        """It was started: from now on it is listened to."""
        self.processes[process.ident] = child, process
        self.hub.admit(process.ident, process.handle.pid)

    def forget(self, ident: str) -> None:
        """It has ended."""
        self.processes.pop(ident, None)
        self.hub.dismiss(ident)
        self.informer.unsubscribe(ident)
        self.budget.forget(ident)
        self.governor.forget(ident)
        self.counters.end(ident)

    def handle(self, ident: str, message: Message) -> None:
        """Hand a message to the part that it is for; one from a process that has ended to none."""
        if ident not in self.processes:
            return
        child, process = self.processes[ident]
        process.heard_at = time.monotonic()
        match message:
            case Ack(epoch, seq):
                self.informer.acknowledge(ident, epoch, seq)
            case Heartbeat(status, numbers):
                process.report = conform(WorkerReport, status)
                self.counters.update(ident, numbers)
            case GrantRequest():
                self.budget.request(ident, message)
            case CloudThrottled():
                self.budget.slow_down(ident, message)
            case CloudRemaining():
                self.budget.limit(message)
            case ProposeDeletions():
                self.hub.send(ident, self.governor.on_message(ident, message))
            case Survived(key):
                self.children.quarantine.record_survival(child.controller, key)
            case _:
                self._on_change(child, process, message)

    def _on_change(self, child: Child, process: WorkerProcess, message: Message) -> None:
        """The rarer messages, about the life of the worker itself."""
        match message:
            case Hello():
                self._on_hello(child, process, message)
            case Synced():
                self.children.on_synced(child, process)
                self.permits.send(child)
            case Fenced(number):
                process.fenced_since = number
            case CompareRoutes():
                for other, (recipient, _) in self.processes.items():
                    if recipient.controller == "route":
                        self.hub.send(other, message)
            case Resync(why):
                log.warning("worker asks for a snapshot", extra={"worker": child.name, "why": why})
                self.informer.resync(process.ident)
            case TokenRefused():
                self.tokens.on_refused(child.controller)
            case Explained():
                self.explainer.on_message(message)
            case Fault(lines):
                process.faults = lines
                self.hub.send(process.ident, Drain(0))

    def _on_hello(self, child: Child, process: WorkerProcess, message: Hello) -> None:
        """A process that is not taken in, such as with a full disk, ends, and another follows."""
        try:
            self.budget.declare(message.quotas)
            self.nodes.provider_ids = re.compile(message.provider_ids)
            if (token := self.tokens.token(child.controller)) is not None:
                path = self.token_files.write(child.controller, token)
                self.hub.send(process.ident, UseToken(path))
            self.informer.subscribe(process.ident, message, self.shards.owns(child))
            self.children.on_hello(child, process)
        except Exception as error:  # around one callback
            log.exception("worker not taken in", extra={"worker": child.name})
            process.faults = [f"it could not be taken in: {error}"]
            process.handle.kill()
