"""What people may ask of a running supervisor over the control socket, `explain` included."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from ccm.bus.frames import Explain, Explained, LogLevel, Message
from ccm.controllers import DECLARATIONS, EXPLAINED
from ccm.errors import ConfigurationFaults
from ccm.log import set_verbosity
from ccm.model.objects import Json
from ccm.model.status import Explanation, Status, WorkerExplanation
from ccm.settings import Settings
from ccm.supervisor.child import Child
from ccm.supervisor.children import Children
from ccm.supervisor.deletions import DeletionGovernor
from ccm.supervisor.freeze import DeletionCommands
from ccm.supervisor.shards import Shards

log = logging.getLogger(__name__)

MAX_NODE_WORKERS = 64
EXPLAIN_TIMEOUT = 2.0  # seconds for a worker's answer


class Verbosity:
    """How much is logged: `level` is for new workers, `broadcast` reaches those that run."""

    def __init__(self, settings: Settings, broadcast: Callable[[Message], None]) -> None:
        self.level = settings.v
        self.reread: Callable[[], Settings] = lambda: settings  # reads the flags again
        self._settings, self._broadcast = settings, broadcast

    def set(self, level: int) -> None:
        """Log this much from now on, in every process."""
        self.level = level
        set_verbosity(level)
        self._broadcast(LogLevel(level))

    def reload(self) -> str:
        """Take the verbosity from the file of `--config`, if there is one; says what came of it."""
        if not self._settings.config:
            return "flags need a restart"
        try:
            self.set(self.reread().v)
        except ConfigurationFaults as faults:
            why = "; ".join(str(fault) for fault in faults.faults)
            log.error("flags are wrong by now and not read again", extra={"why": why})
            return f"flags are wrong by now: {why}"
        return f"the verbosity is {self.level}, other flags need a restart"


class Explainer:
    """Asks each worker that reconciles an object why it is as it is, and joins the answers."""

    def __init__(
        self,
        children: Children,
        shards: Shards,
        governor: DeletionGovernor,
        send: Callable[[str, Message], bool],
        why_standby: Callable[[], str],
    ) -> None:
        self._children, self._shards, self._governor = children, shards, governor
        self._send, self._why_standby = send, why_standby
        self._numbers = count(1)
        self._pending: dict[int, asyncio.Future[Json]] = {}

    def on_message(self, message: Explained) -> None:
        """Take a worker's answer; one that came too late is dropped."""
        waiting = self._pending.get(message.number)
        if waiting and not waiting.done():
            waiting.set_result(message.status)

    async def answer(self, request: Json) -> Explanation | Json:
        """The control command `explain`: `kind` is one of `EXPLAINED`, `name` its key."""
        what, key = str(request.get("kind")), str(request.get("name") or "")
        if what not in EXPLAINED or not key:
            return {"error": f"explain {what!r} {key!r}: name one of {', '.join(EXPLAINED)}"}
        kind = EXPLAINED[what].kind
        controllers = [
            declaration.package for declaration in DECLARATIONS if declaration.explained == what
        ]
        workers = self._workers_of(kind, controllers, key)
        answers = await asyncio.gather(*(self._ask(child, key) for child in workers))
        standby = self._why_standby()
        answer: Explanation = {"kind": what, "name": key, "standby": standby, "workers": answers}
        if kind == "Node" and (verdict := self._governor.verdict(key)):
            answer["deletion"] = verdict
        return answer

    def _workers_of(self, kind: str, controllers: Collection[str], key: str) -> Iterator[Child]:
        for child in self._children:
            if child.controller in controllers and self._shards.owns(child)(kind, key):
                yield child

    async def _ask(self, child: Child, key: str) -> WorkerExplanation:
        answer: WorkerExplanation = {"worker": child.name, "state": child.life.state}
        if key in self._children.quarantine.quarantined(child.controller):
            answer["quarantined"] = "its reconcile ended workers again and again; tried again later"
        if child.current is None:
            return answer
        number = next(self._numbers)
        reply = self._pending[number] = asyncio.get_running_loop().create_future()
        self._send(child.current.ident, Explain(number, key))
        try:
            answer |= await asyncio.wait_for(reply, EXPLAIN_TIMEOUT)
        except TimeoutError:
            answer["decided"] = f"the worker did not answer within {EXPLAIN_TIMEOUT:g} s"
        finally:
            del self._pending[number]
        return answer


@dataclass(frozen=True, slots=True)
class ControlCommands:
    """Answers one request with one JSON object: `ok` or `error` with a sentence, or a status."""

    children: Children
    shards: Shards
    deletions: DeletionCommands
    explainer: Explainer
    verbosity: Verbosity
    status: Callable[[], Status]
    stop: Callable[[], None]
    reload: Callable[[], Awaitable[Json]]

    async def answer(self, request: Json) -> Mapping[str, Any]:
        """The answer to `request`, whose `command` names one of the cases below."""
        match request.get("command"):
            case "status":
                return self.status()
            case "stop":
                self.stop()
                return {"ok": "stopping"}
            case "reload":
                return await self.reload()
            case "restart":
                return self._restart(str(request.get("worker")))
            case "scale":
                return await self._scale(request.get("count"))
            case "deletions":
                return await self.deletions.answer(request)
            case "explain":
                return await self.explainer.answer(request)
            case "log-level":
                return self._log_level(request.get("verbosity"))
        return {"error": f"unknown command {request.get('command')!r}"}

    def _restart(self, name: str) -> Json:
        child = self.children.get(name)
        if child is None:
            names = ", ".join(child.name for child in self.children)
            return {"error": f"no worker {name!r}; there are: {names}"}
        return {"ok": self.children.restart(child)}

    async def _scale(self, workers: object) -> Json:
        if not isinstance(workers, int) or not 1 <= workers <= MAX_NODE_WORKERS:
            return {"error": f"the number of workers must be from 1 to {MAX_NODE_WORKERS}"}
        return {"ok": await self.shards.scale(workers)}

    def _log_level(self, level: object) -> Json:
        if not isinstance(level, int):
            return {"error": "the verbosity must be a number"}
        self.verbosity.set(level)
        return {"ok": f"verbosity is {level}"}
