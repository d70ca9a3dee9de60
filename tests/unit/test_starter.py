"""What becomes of a start when the template, or the kernel, does not do its part."""

import errno
import os
import shutil
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from ccm.bus.frames import WorkerSpec
from ccm.supervisor import starter
from tests.support.deadlines import timeout
from tests.support.running import is_alive

SPEC = cast(WorkerSpec, SimpleNamespace(name="node-0"))


class Template:
    """One whose forks end as the test says; it makes processes that sleep."""

    outcomes: ClassVar[list[Exception]] = []
    loads: ClassVar[list[Exception | None]] = []

    def __init__(self, *_: Any) -> None:
        if self.loads and (error := self.loads.pop(0)):
            raise error
        self.made: list[int] = []

    def is_loaded(self) -> bool:
        return True

    def fork(self, spec: WorkerSpec) -> int:
        if self.outcomes and (error := self.outcomes.pop(0)):
            raise error
        sleep = shutil.which("sleep") or ""
        self.made.append(os.posix_spawn(sleep, ["sleep", "60"], {}))
        return self.made[-1]

    def end(self) -> None:
        pass


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> starter.WorkerStarter:
    monkeypatch.setattr(starter, "_Template", Template)
    monkeypatch.setattr(starter, "adopt_orphans", lambda: None)
    return starter.WorkerStarter("simulated", ["node"]).__enter__()


def ends(process: starter.Process) -> None:
    process.kill()
    process.join(timeout())
    assert process.exitcode


def full() -> OSError:
    return OSError(errno.EMFILE, "too many open files")


def test_a_worker_that_cannot_be_watched_is_ended(
    ready: starter.WorkerStarter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int) -> int:
        raise full()

    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", refuse)
        with pytest.raises(OSError, match="too many"):
            ready.start(SPEC)
    template = cast(Template, cast(Any, ready)._template)
    assert not is_alive(template.made[0])
    ends(ready.start(SPEC))


@pytest.mark.parametrize(
    ("outcome", "load"),
    [(TimeoutError("it does not answer"), None), (EOFError(), full()), (full(), full())],
    ids=["slow", "gone", "full"],
)
def test_a_start_that_failed_leaves_the_next_one_possible(
    ready: starter.WorkerStarter,
    monkeypatch: pytest.MonkeyPatch,
    outcome: Exception,
    load: Exception | None,
) -> None:
    monkeypatch.setattr(Template, "outcomes", [outcome])
    monkeypatch.setattr(Template, "loads", [load])
    with pytest.raises(OSError, match=r"answer|too many"):
        ready.start(SPEC)
    spawned: list[str] = []
    plain = SimpleNamespace(start=lambda: spawned.append("again"))
    monkeypatch.setattr(cast(Any, ready)._context, "Process", lambda **_: plain)
    process = ready.start(SPEC)
    assert bool(spawned) is bool(load)
    if not load:
        ends(process)
