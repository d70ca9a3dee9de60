"""Until when each worker may act: sent to it, with whether it has stopped when it may no more."""

import time
from collections.abc import Callable

from ccm.bus.frames import AskFenced, Permit
from ccm.bus.sockets import Hub
from ccm.decide.children import WorkerEvent
from ccm.supervisor.child import Child
from ccm.supervisor.children import Children


class Permits:
    """Sends permissions to workers that have said hello; no other process may ever act."""

    def __init__(self, hub: Hub, children: Children) -> None:
        self._hub, self._children = hub, children
        self._until: Callable[[str], float] = lambda _: 0.0
        self._changes = 0

    def on_change(self, until: Callable[[str], float]) -> None:
        """A permission changed: `until` says for a controller until when its workers may act."""
        self._until = until
        self._changes += 1
        for child in self._children:
            self.send(child)

    def send(self, child: Child) -> None:
        """Let the current process act, unless its keys still belong to others."""
        process = child.current
        if process is None or not process.said_hello or child.is_joining:
            return
        until = self._until(child.controller)
        self._hub.send(process.ident, Permit(until))
        is_leading = until > time.monotonic()
        event = WorkerEvent.STARTED_LEADING if is_leading else WorkerEvent.STOPPED_LEADING
        self._children.transition(child, event)

    def are_fenced(self) -> bool:
        """Whether all said that they do not act since the last change; asks who has not."""
        processes = [process for child in self._children for process in child.processes()]
        late = [p for p in processes if p.said_hello and p.fenced_since != self._changes]
        for process in late:
            self._hub.send(process.ident, AskFenced(self._changes))
        return not late
