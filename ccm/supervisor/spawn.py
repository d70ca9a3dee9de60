"""Starting a worker process; a spawned process imports this module first, so it stays small."""

import importlib
from typing import Any

import multiprocess

from ccm.bus.frames import WorkerSpec


def run_worker(spec: WorkerSpec) -> None:
    """The first code of a spawned process; named by text, as the supervisor imports no worker."""
    importlib.import_module("workers.main").main(spec)


def start_process(spec: WorkerSpec) -> Any:
    """A running `multiprocess` process for `spec`.

    Call it from the main thread only: the kernel ends a child when the thread that started it ends.
    """
    context = multiprocess.get_context("spawn")
    process = context.Process(target=run_worker, args=(spec,), name=spec.name, daemon=True)
    process.start()
    return process
