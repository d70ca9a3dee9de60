"""What workers are told of permissions, and when the supervisor knows that all have stopped."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from ccm.bus.frames import AskFenced, Message, Permit
from ccm.bus.sockets import Hub
from ccm.decide.children import Life, WorkerState
from ccm.supervisor.child import Child, WorkerProcess
from ccm.supervisor.children import Children
from ccm.supervisor.leadership import Leadership
from ccm.supervisor.permits import Permits


class World:
    """Workers by name, what was sent to their processes, and until when this replica leads."""

    def __init__(self, *names: str) -> None:
        self.sent: list[tuple[str, Message]] = []
        self.until = 0.0
        life = Life(WorkerState.STANDBY)
        self.children = [Child(name, "node", life, current=process(name)) for name in names]
        hub = SimpleNamespace(send=lambda ident, message: self.sent.append((ident, message)))
        leader = SimpleNamespace(until=lambda controller: self.until)
        self.permits = Permits(cast(Hub, hub), cast(Leadership, leader), cast(Children, self))

    def __iter__(self) -> object:
        return iter(self.children)

    def transition(self, child: Child, event: object) -> None:
        """The states are of no matter here."""

    def change(self, until: float) -> None:
        self.until = until
        self.permits.on_change()
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


def test_who_has_not_said_hello_is_neither_permitted_nor_asked() -> None:
    w = World("node-0", "node-1")
    w.children[1].current = process("node-1", said_hello=False)
    w.until = time.monotonic() + 10.0
    w.permits.on_change()
    assert w.sent == [("node-0", Permit(w.until))]
    w.change(0.0)
    w.permits.are_fenced()
    assert [ident for ident, _ in w.sent] == ["node-0"]


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
