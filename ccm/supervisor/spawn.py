"""Starting a worker process; kept apart because a spawned child imports this module first."""

import importlib
from typing import Any

import multiprocess

from ccm.bus.frames import WorkerSpec


def enter(spec: WorkerSpec) -> None:
    """The first code of a worker; workers are named by text, the supervisor imports none."""
    importlib.import_module("workers.main").main(spec)


def start(spec: WorkerSpec) -> Any:
    """A running `multiprocess` process for `spec`.

    Call it from the main thread only: the kernel ends a child when the thread that started it ends.
    """
    context = multiprocess.get_context("spawn")
    process = context.Process(target=enter, args=(spec,), name=spec.name, daemon=True)
    process.start()
    return process
