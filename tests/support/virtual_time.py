"""Time that only tests move: for what waits by the clock and talks to nobody outside its process.

A test with the marker `virtual_time` waits for no clock: where its loop would wait for a timer, the
time is moved to it. So its seconds are exact, however slow the machine is. What computes, or works
in a thread, takes no time but what `VirtualLoop.compute` says; sockets and processes do not belong
here, as nothing waits for them.
"""

import asyncio
import selectors
import time
from asyncio import Future
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple
from unittest.mock import patch

import pytest

from tests.support import deadlines

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EPOCH = 1e6  # seconds at which time begins, as on a machine that has been up for long


class _NoWaiting(selectors.SelectSelector):
    """Moves the time forward where a real one would wait."""

    now = EPOCH
    threads = 0  # that are at work

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.threads and timeout != 0:
            return super().select(None)
        if timeout is None:
            raise AssertionError("nothing will ever happen again")
        self.now += max(timeout, 1e-6)  # a turn of the loop takes its time
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which an hour takes as long as what happens in it."""

    def __init__(self) -> None:
        self._no_waiting = _NoWaiting()
        super().__init__(self._no_waiting)
        self._computed = 0.0

    def time(self) -> float:
        return self._no_waiting.now

    def _monotonic(self) -> float:
        """The same, but as to the real clock, no two looks are at the same moment."""
        self._no_waiting.now += 1e-9
        return self._no_waiting.now

    def compute(self, seconds: float) -> None:
        """Let the processor work for so long."""
        self._computed += seconds
        self._no_waiting.now += seconds

    def run_forever(self) -> None:
        at_rest = patch.object(deadlines, "slowness", lambda: 1.0)  # the load costs no time here
        processor = patch.object(time, "thread_time", lambda: self._computed)
        with patch.object(time, "monotonic", self._monotonic), processor, at_rest:
            super().run_forever()

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> Future[T]:
        self._no_waiting.threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._on_thread_done)
        return future

    async def shutdown_default_executor(self, *timeout: Any) -> None:
        self._no_waiting.threads += 1
        await super().shutdown_default_executor(*timeout)
        self._no_waiting.threads -= 1

    def _on_thread_done(self, _: object) -> None:
        self._no_waiting.threads -= 1


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that the marker asks for; for other tests the usual one."""
    is_virtual = item.get_closest_marker("virtual_time")
    return {"loop": VirtualLoop if is_virtual else asyncio.new_event_loop}
