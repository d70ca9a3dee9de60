"""What workers are told of permissions, and when the supervisor knows that all have stopped."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from ccm.bus.frames import AskFenced, Message, Permit
from ccm.bus.sockets import Hub
from ccm.decide.children import Life, WorkerEvent, WorkerState
from ccm.supervisor.child import Child, WorkerProcess
from ccm.supervisor.children import Children
from ccm.supervisor.permits import Permits


class World:
    """Workers by name, what was sent to their processes, and until when this replica leads for
    the controller that they all run."""

    def __init__(self, *names: str) -> None:
        self.sent: list[tuple[str, Message]] = []
        self.until = 0.0
        self.events: list[tuple[str, WorkerEvent]] = []
        life = Life(WorkerState.STANDBY)
        self.children = [Child(name, "node", life, current=process(name)) for name in names]
        hub = SimpleNamespace(send=lambda ident, message: self.sent.append((ident, message)))
        self.permits = Permits(cast(Hub, hub), cast(Children, self))

    def until_of(self, controller: str) -> float:
        return {"node": self.until}[controller]

    def __iter__(self) -> object:
        return iter(self.children)

    def transition(self, child: Child, event: WorkerEvent) -> None:
        self.events.append((child.name, event))

    def change(self, until: float) -> None:
        self.until = until
        self.permits.on_change(self.until_of)
        self.sent.clear()

    def answer(self) -> None:
        """Every process that was asked says that it stopped."""
        for ident, message in self.sent:
            assert isinstance(message, AskFenced)
            for child in self.children:
                for one in child.processes():
                    if one.ident == ident:
                        one.fenced_since = message.number
        self.sent.clear()


def process(ident: str, said_hello: bool = True) -> WorkerProcess:
    return WorkerProcess(ident, cast(Any, None), Path(), (), said_hello)


def test_a_worker_leads_or_stands_by_as_its_permission_says() -> None:
    w = World("node-0", "node-1")
    w.change(time.monotonic() + 10.0)
    leading, over = WorkerEvent.STARTED_LEADING, WorkerEvent.STOPPED_LEADING
    assert w.events == [("node-0", leading), ("node-1", leading)]
    w.events.clear()
    w.change(time.monotonic())
    assert w.events == [("node-0", over), ("node-1", over)]


def test_who_says_hello_before_anyone_led_stands_by() -> None:
    w = World("node-0")
    w.permits.send(w.children[0])
    assert w.sent == [("node-0", Permit(0.0))]
    assert w.events == [("node-0", WorkerEvent.STOPPED_LEADING)]


def test_who_joins_is_not_permitted_while_its_keys_are_others() -> None:
    w = World("node-0")
    w.children[0].is_joining = True
    w.until = time.monotonic() + 10.0
    w.permits.on_change(w.until_of)
    assert (w.sent, w.events) == ([], [])


def test_who_has_not_said_hello_is_neither_permitted_nor_asked() -> None:
    w = World("node-0", "node-1")
    w.children[1].current = process("node-1", said_hello=False)
    w.until = time.monotonic() + 10.0
    w.permits.on_change(w.until_of)
    assert w.sent == [("node-0", Permit(w.until))]
    w.change(0.0)
    w.permits.are_fenced()
    assert [ident for ident, _ in w.sent] == ["node-0"]


def test_who_was_never_permitted_is_fenced() -> None:
    w = World("node-0")
    assert w.permits.are_fenced()
    assert w.sent == []


def test_all_are_fenced_once_each_said_so() -> None:
    w = World("node-0", "node-1")
    w.children[1].successor = process("node-1.2")
    w.change(0.0)
    assert not w.permits.are_fenced()
    assert [ident for ident, _ in w.sent] == ["node-0", "node-1", "node-1.2"]
    w.answer()
    assert w.permits.are_fenced()
    assert w.sent == []


def test_only_who_has_not_answered_is_asked_again() -> None:
    w = World("node-0", "node-1")
    w.change(0.0)
    w.permits.are_fenced()
    w.sent.pop()
    w.answer()
    assert not w.permits.are_fenced()
    assert [ident for ident, _ in w.sent] == ["node-1"]


def test_an_answer_of_before_the_last_permission_does_not_count() -> None:
    w = World("node-0")
    w.change(0.0)
    w.permits.are_fenced()
    late = list(w.sent)
    w.change(time.monotonic() + 10.0)
    w.change(0.0)
    w.sent = late
    w.answer()
    assert not w.permits.are_fenced()


def test_a_process_that_ended_is_not_waited_for() -> None:
    w = World("node-0")
    w.change(0.0)
    assert not w.permits.are_fenced()
    w.children[0].current = None
    assert w.permits.are_fenced()
