"""What each thread and each task of the supervisor is at, for those who look for a standstill."""

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any


def stacks() -> str:
    """Call it in the loop. Lines of code only: no values, which may be secrets."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f"thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    ]
    for task in sorted(asyncio.all_tasks(), key=asyncio.Task.get_name):
        lines = (traceback.format_stack(frame, limit=1) for frame in _frames(task.get_coro()))
        parts.append(f"task {task.get_name()}\n{''.join(line for (line,) in lines)}")
    return "\n".join(parts)


def _frames(waiting: Any) -> Iterator[FrameType]:
    """From the task's own function to the innermost one that waits."""
    while waiting is not None:
        for kind in ("cr", "gi", "ag"):
            if frame := getattr(waiting, f"{kind}_frame", None):
                yield frame
        waiting = next(
            filter(
                None, (getattr(waiting, n, None) for n in ("cr_await", "gi_yieldfrom", "ag_await"))
            ),
            None,
        )
